package operator

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/queue"
	"github.com/cadastre-dev/cadastre/internal/testing/replica"
)

func TestReplicaEndsWithinTerminationGracePeriod(t *testing.T) {
	text, err := os.ReadFile("../../config/manager/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var deployment appsv1.Deployment
	if err := yaml.Unmarshal(text, &deployment); err != nil {
		t.Fatal(err)
	}
	grace := deployment.Spec.Template.Spec.TerminationGracePeriodSeconds
	if grace == nil || shutdownTimeout > time.Duration(*grace)*time.Second-2*time.Second {
		t.Errorf("it ends within %s, want at least 2 s less than terminationGracePeriodSeconds of its Pod", shutdownTimeout)
	}
}

// TestCacheKeepsOnlyReadFields covers the labels and annotations of the tenants' objects: they
// can be as long as the API server stores.
func TestCacheKeepsOnlyReadFields(t *testing.T) {
	cluster := map[string]string{clusterv1.ClusterNameLabel: "fleet"}
	watched := map[string]string{clusterv1.ClusterNameLabel: "fleet", clusterv1.WatchLabel: "here"}
	pool := map[string]string{v1alpha1.LabelPool: "p", v1alpha1.LabelPoolKind: "IPPool"}
	read := map[string]string{v1alpha1.AnnotationPaused: "", v1alpha1.AnnotationSticky: "node-1", v1alpha1.AnnotationRequestedBy: "admin"}
	for name, c := range map[string]struct {
		obj          client.Object
		read, others map[string]string
	}{
		"an IPClaim":        {obj: &v1alpha1.IPClaim{}, others: cluster},
		"an IPAddressClaim": {obj: &ipamv1.IPAddressClaim{}, read: watched},
		"an IPAddress":      {obj: &ipamv1.IPAddress{}, read: pool},
		"a LocalIPPool":     {obj: &v1alpha1.LocalIPPool{}, read: map[string]string{"zone": "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			labels, annotations := maps.Clone(c.others), maps.Clone(read)
			if labels == nil {
				labels = map[string]string{}
			}
			maps.Copy(labels, c.read)
			if _, ok := c.obj.(*v1alpha1.LocalIPPool); !ok {
				labels["long"] = strings.Repeat("x", 1<<10)
			}
			annotations["long"] = strings.Repeat("x", 1<<18)
			c.obj.SetLabels(labels)
			c.obj.SetAnnotations(annotations)
			c.obj.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kubectl"}})
			if _, err := slimmer()(c.obj); err != nil {
				t.Fatal(err)
			}
			if got := c.obj.GetLabels(); !maps.Equal(got, c.read) {
				t.Errorf("labels are %v, want %v", got, c.read)
			}
			if got := c.obj.GetAnnotations(); !maps.Equal(got, read) {
				t.Errorf("annotations are %v, want %v", got, read)
			}
			if c.obj.GetManagedFields() != nil {
				t.Error("the managed fields are kept")
			}
		})
	}
}

// TestCacheTruncatesLongValues expects that a long value is cut: other values
// of the same length have as little meaning as the whole.
func TestCacheTruncatesLongValues(t *testing.T) {
	long := strings.Repeat("x", 1<<18)
	owners, finalizers := []metav1.OwnerReference{{UID: "1"}}, []string{"example.com/f"}
	for _, obj := range []client.Object{&v1alpha1.IPClaim{}, &v1alpha1.IPPool{}, &v1alpha1.LocalIPPool{}, &ipamv1.IPAddressClaim{}, &ipamv1.IPAddress{}} {
		annotations, labels := map[string]string{}, map[string]string{}
		for key := range annotationBytes {
			annotations[key] = long
		}
		for n := range 1000 {
			labels[fmt.Sprint("label-", n)] = ""
		}
		obj.SetAnnotations(annotations)
		obj.SetLabels(labels)
		obj.SetOwnerReferences(owners)
		obj.SetFinalizers(finalizers)
		if _, err := slimmer()(obj); err != nil {
			t.Fatal(err)
		}
		for key, most := range annotationBytes {
			if value, ok := obj.GetAnnotations()[key]; !ok || len(value) != most {
				t.Errorf("%T: of %s %d bytes are kept, want %d", obj, key, len(value), most)
			}
		}
		_, isClaim := obj.(*v1alpha1.IPClaim) // one of a Cluster's network, by its annotation
		_, isAddress := obj.(*ipamv1.IPAddress)
		if len(obj.GetLabels()) > labelsOfPool || len(obj.GetOwnerReferences()) > 0 != (isAddress || isClaim) || len(obj.GetFinalizers()) == 0 {
			t.Errorf("%T: %d labels, %d owners and %d finalizers are kept", obj, len(obj.GetLabels()), len(obj.GetOwnerReferences()), len(obj.GetFinalizers()))
		}
	}
}

// TestCacheKeepsOwnersOfClusterClaimsAlone covers a patch of such a claim, which replaces its finalizers.
func TestCacheKeepsOwnersOfClusterClaimsAlone(t *testing.T) {
	for identity, want := range map[string]int{"": 0, "prod/pods/0": 1} {
		claim := &v1alpha1.IPClaim{}
		claim.Status.Phase = v1alpha1.ClaimBound
		claim.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
		claim.Finalizers, claim.OwnerReferences = []string{"a"}, []metav1.OwnerReference{{Name: "a"}}
		claim.Annotations = map[string]string{v1alpha1.AnnotationClusterNetwork: identity}
		if _, err := slimmer()(claim); err != nil {
			t.Fatal(err)
		}
		if len(claim.Finalizers) != want || len(claim.OwnerReferences) != want || len(claim.Annotations) != want {
			t.Errorf("%q: %d finalizers, %d owners and the annotations %v are kept", identity, len(claim.Finalizers), len(claim.OwnerReferences), claim.Annotations)
		}
	}
}

// TestFortyLargestClaimsWaitInFiveMebibytes measures them in the cache, the queue and the
// catalog.
func TestFortyLargestClaimsWaitInFiveMebibytes(t *testing.T) {
	parts := replica.New(replica.Options{Ledger: ledger.New(ledger.Options{Clock: clock.RealClock{}}), WaitingLimit: 1000})
	heap := func() uint64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.GC() // the second collection frees the objects of other tests in a sync.Pool
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	before := heap()
	cached, full := []any{}, 0
	for n := range 40 {
		claim := largestClaim(t, n)
		slim, err := slimmer()(claim)
		if err != nil {
			t.Fatal(err)
		}
		cached = append(cached, slim)
		request, errs := convert.Claim(claim)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		if parts.Queue.MayWait("team", request) != nil {
			full++
		}
		parts.Queue.Wait(queue.Waiter{Since: time.Unix(int64(n), 0), Holder: convert.HolderOfClaim(request.Claim), Request: request})
	}
	if used := heap() - before; used > 5<<20 {
		t.Errorf("they take %.1f MiB, want 5 at most", float64(used)/(1<<20))
	} else {
		t.Logf("they take %.1f MiB", float64(used)/(1<<20))
	}
	if full == 0 {
		t.Error("none of them is beyond the bound of a namespace")
	}
	runtime.KeepAlive(cached)
	runtime.KeepAlive(parts)
}

// largestClaim returns a claim of the largest allowed size, as a watch decodes it.
func largestClaim(t *testing.T, n int) *v1alpha1.IPClaim {
	t.Helper()
	claim := &v1alpha1.IPClaim{Spec: v1alpha1.IPClaimSpec{PoolSelector: &v1alpha1.PoolSelector{}}}
	claim.Namespace, claim.Name = "team", fmt.Sprint("large-", n)
	claim.Annotations = map[string]string{"long": strings.Repeat("x", 1<<18), v1alpha1.AnnotationSticky: strings.Repeat("x", 1<<12)}
	claim.Labels = map[string]string{}
	for i := range 256 {
		claim.Labels[fmt.Sprint("label-", i)] = strings.Repeat("x", 63)
	}
	for i := range 64 {
		claim.Finalizers = append(claim.Finalizers, fmt.Sprintf("example.com/%d", i))
		claim.OwnerReferences = append(claim.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: strings.Repeat("x", 253), UID: "1"})
	}
	for term := range v1alpha1.MaxSelectorTerms {
		e := v1alpha1.PoolSelectorExpression{Key: fmt.Sprintf("%s/%02d%s", strings.Repeat("x", 60), term, strings.Repeat("x", 61)), Operator: metav1.LabelSelectorOpNotIn}
		for value := range v1alpha1.MaxSelectorValues {
			e.Values = append(e.Values, v1alpha1.LabelValue(fmt.Sprintf("%02d-%02d%s", n, value, strings.Repeat("x", 58))))
		}
		claim.Spec.PoolSelector.MatchExpressions = append(claim.Spec.PoolSelector.MatchExpressions, e)
	}
	text, err := json.Marshal(claim)
	if err != nil {
		t.Fatal(err)
	}
	decoded := &v1alpha1.IPClaim{}
	if err := json.Unmarshal(text, decoded); err != nil {
		t.Fatal(err)
	}
	return decoded
}
