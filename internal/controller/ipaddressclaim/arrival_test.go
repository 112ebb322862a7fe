package ipaddressclaim

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestKindServedAfterCRDEventIsWatched sends the last event of the CRDs
// before the API server serves their kinds.
func TestKindServedAfterCRDEventIsWatched(t *testing.T) {
	scheme := schemeOf(t, apiextensionsv1.AddToScheme)
	store, mapper, starts := fake.NewClientBuilder().WithScheme(scheme).Build(), meta.NewDefaultRESTMapper(nil), 0
	watchCount, isSynced := 0, false
	a := &arrival{
		client: store, mapper: mapper, log: logr.Discard(),
		watchClusters: func() (func() bool, error) { watchCount++; return func() bool { return isSynced }, nil },
		addSource:     func(func() bool) { t.Error("all that is handed out waits for Clusters") },
		start:         func() error { starts++; return nil },
	}
	expect := func(when string, again time.Duration, started int) {
		t.Helper()
		result, err := a.Reconcile(t.Context(), reconcile.Request{})
		if err != nil || result.RequeueAfter != again || starts != started {
			t.Fatalf("%s: asked again after %s, not %s; started %d times, not %d (%v)", when, result.RequeueAfter, again, starts, started, err)
		}
	}
	for _, name := range crdNames() {
		expect("until all are defined", 0, 0)
		if err := store.Create(t.Context(), &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, gvk := range requiredKinds() {
		expect("until all are served", servedPollInterval, 0)
		mapper.Add(gvk, meta.RESTScopeNamespace)
	}
	expect("until the Clusters are known", knownPollInterval, 0)
	expect("until the Clusters are known", knownPollInterval, 0)
	isSynced = true
	expect("when all are known", 0, 1)
	expect("afterwards", 0, 1)
	if watchCount != 1 {
		t.Errorf("Clusters are watched %d times", watchCount)
	}
}
