package ipclaim

import (
	"encoding/json"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// storedClaim returns a claim that is bound as the API server sends it.
func storedClaim(t *testing.T) []byte {
	t.Helper()
	claim, _ := boundClaim()
	claim.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "IPClaim"}
	claim.UID, claim.ResourceVersion = "6f9619ff-8b86-d011-b42d-00cf4fc964ff", "123456"
	for i := range claim.Status.Conditions { // JSON has no fractions of seconds
		claim.Status.Conditions[i].LastTransitionTime = metav1.NewTime(time.Unix(1_800_000_000, 0))
	}
	text, err := json.Marshal(claim)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func parse(t *testing.T, text []byte) *v1alpha1.IPClaim {
	t.Helper()
	claim := &v1alpha1.IPClaim{}
	if err := json.Unmarshal(text, claim); err != nil {
		t.Fatal(err)
	}
	return claim
}

// TestTrimmedClaimKeepsReadFields expects that the rest is dropped; a claim that is not Bound, or
// not Ready, is kept whole.
func TestTrimmedClaimKeepsReadFields(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1alpha1.IPClaim)
		trims  bool
	}{
		"bound":               {func(*v1alpha1.IPClaim) {}, true},
		"bound and going":     {func(c *v1alpha1.IPClaim) { c.DeletionTimestamp = &metav1.Time{Time: time.Unix(1_800_000_000, 0)} }, true},
		"pending":             {func(c *v1alpha1.IPClaim) { c.Status.Phase = v1alpha1.ClaimPending }, false},
		"without a status":    {func(c *v1alpha1.IPClaim) { c.Status = v1alpha1.IPClaimStatus{} }, false},
		"bound, and conflict": {func(c *v1alpha1.IPClaim) { c.Status.Conditions[0].Status = metav1.ConditionFalse }, false},
	} {
		t.Run(name, func(t *testing.T) {
			claim := parse(t, storedClaim(t))
			test.change(claim)
			whole := claim.DeepCopy()
			Trim(claim)
			want := whole
			if test.trims {
				want = &v1alpha1.IPClaim{
					ObjectMeta: metav1.ObjectMeta{
						Namespace: whole.Namespace, Name: whole.Name, UID: whole.UID, ResourceVersion: whole.ResourceVersion, DeletionTimestamp: whole.DeletionTimestamp,
					},
					Spec:   v1alpha1.IPClaimSpec{CIDR: whole.Spec.CIDR, AllocationName: whole.Spec.AllocationName, ReclaimPolicy: whole.Spec.ReclaimPolicy},
					Status: v1alpha1.IPClaimStatus{Phase: v1alpha1.ClaimBound},
				}
			}
			if diff := cmp.Diff(want, claim); diff != "" || isTrimmed(claim) != test.trims {
				t.Errorf("trimmed is %t, want %t: %s", isTrimmed(claim), test.trims, diff)
			}
			again := claim.DeepCopy()
			Trim(again)
			if diff := cmp.Diff(claim, again); diff != "" {
				t.Errorf("trimmed twice: %s", diff)
			}
		})
	}
}

// heapOf returns the memory that each of many objects takes.
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
