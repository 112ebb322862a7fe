package kubeutil

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// TestHandlerCallsForInformerEvents covers also deletions that the informer missed.
func TestHandlerCallsForInformerEvents(t *testing.T) {
	var calls []string
	h := Handler(
		func(c *v1alpha1.IPClaim) { calls = append(calls, "take "+string(c.UID)) },
		func(c *v1alpha1.IPClaim) { calls = append(calls, "lose "+string(c.UID)) })
	a, b := claimOf("a"), claimOf("b")
	for name, c := range map[string]struct {
		do   func()
		want []string
	}{
		"it comes":                               {func() { h.OnAdd(a, false) }, []string{"take a"}},
		"it changes":                             {func() { h.OnUpdate(a, a) }, []string{"take a"}},
		"another is in its place":                {func() { h.OnUpdate(a, b) }, []string{"lose a", "take b"}},
		"it goes":                                {func() { h.OnDelete(a) }, []string{"lose a"}},
		"it is gone, and was missed":             {func() { h.OnDelete(cache.DeletedFinalStateUnknown{Obj: a}) }, []string{"lose a"}},
		"the deleted object was not of the kind": {func() { h.OnDelete(cache.DeletedFinalStateUnknown{Obj: "x"}) }, nil},
	} {
		calls = nil
		if c.do(); !slices.Equal(calls, c.want) {
			t.Errorf("%s: calls %v, want %v", name, calls, c.want)
		}
	}
}

func claimOf(uid types.UID) *v1alpha1.IPClaim {
	return &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x", UID: uid}}
}
