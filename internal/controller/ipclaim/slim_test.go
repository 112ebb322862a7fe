package operator

import (
	"encoding/json"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

func boundClaim(t *testing.T) []byte {
	t.Helper()
	bits := int32(28)
	claim := &v1alpha1.IPClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a", UID: "6f9619ff-8b86-d011-b42d-00cf4fc964ff", ResourceVersion: "123456"},
		Spec: v1alpha1.IPClaimSpec{
			PoolRef: &v1alpha1.PoolReference{Kind: v1alpha1.KindIPPool, Name: "corporate"}, IPFamily: v1alpha1.IPv4, PrefixLength: &bits,
			CIDR: "10.0.0.16/28", AllocationName: "a-abcdefgh", ReclaimPolicy: "Delete",
		},
		Status: v1alpha1.IPClaimStatus{
			Phase: v1alpha1.ClaimBound, AllocatedCIDR: "10.0.0.16/28", PoolRef: &v1alpha1.PoolReference{Kind: v1alpha1.KindIPPool, Name: "corporate"},
			BoundAllocationRef: &v1alpha1.AllocationReference{Name: "a-abcdefgh"},
		},
	}
	for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionPending, v1alpha1.ConditionBound, v1alpha1.ConditionExhausted} {
		claim.Status.Conditions = append(claim.Status.Conditions, metav1.Condition{Type: kind, Status: "True", Reason: "Bound", Message: "10.0.0.16/28 of IPPool corporate is held for this claim"})
	}
	text, err := json.Marshal(claim)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func read(t *testing.T, text []byte) *v1alpha1.IPClaim {
	t.Helper()
	claim := &v1alpha1.IPClaim{}
	if err := json.Unmarshal(text, claim); err != nil {
		t.Fatal(err)
	}
	return claim
}

func TestAClaimInTheCacheSaysTheSame(t *testing.T) {
	text := boundClaim(t)
	claim := read(t, text)
	share(claim)
	if diff := cmp.Diff(read(t, text), claim); diff != "" {
		t.Error(diff)
	}
}

func TestClaimsInTheCacheAreSmaller(t *testing.T) {
	text := boundClaim(t)
	plain := heapOf(func() any { return read(t, text) })
	shared := heapOf(func() any {
		claim := read(t, text)
		share(claim)
		return claim
	})
	t.Logf("a claim takes %d bytes, %d as the cache has it", plain, shared)
	if shared*5 > plain*4 {
		t.Errorf("a claim takes %d bytes, %d as the cache has it: want four fifths at most", plain, shared)
	}
}

// heapOf is what each of many takes.
func heapOf(one func() any) uint64 {
	const many = 2000
	var before, after runtime.MemStats
	kept := make([]any, many)
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range kept {
		kept[i] = one()
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(kept)
	return (after.HeapAlloc - before.HeapAlloc) / many
}
