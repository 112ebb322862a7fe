package ipclaim

import (
	"encoding/json"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
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

// TestPackingLosesNoField expects that a claim is kept as it is if the smaller form would lose a
// part.
func TestPackingLosesNoField(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1alpha1.IPClaim)
		packs  bool
	}{
		"bound":                          {func(*v1alpha1.IPClaim) {}, true},
		"of IPv6":                        {func(c *v1alpha1.IPClaim) { c.Spec.CIDR = "2001:db8::/64" }, true},
		"about to go":                    {func(c *v1alpha1.IPClaim) { c.DeletionTimestamp = &metav1.Time{Time: time.Unix(1_800_000_000, 0)} }, true},
		"its record is called otherwise": {func(c *v1alpha1.IPClaim) { c.Spec.AllocationName = "restored" }, true},
		"without a reclaim policy":       {func(c *v1alpha1.IPClaim) { c.Spec.ReclaimPolicy = "" }, true},
		"without a record":               {func(c *v1alpha1.IPClaim) { c.Spec.AllocationName = "" }, true},
		"no UUID":                        {func(c *v1alpha1.IPClaim) { c.UID = "1" }, false},
		"a UUID in capitals":             {func(c *v1alpha1.IPClaim) { c.UID = "6F9619FF-8B86-D011-B42D-00CF4FC964FF" }, false},
		"a version that is no number":    {func(c *v1alpha1.IPClaim) { c.ResourceVersion = "a" }, false},
		"a version with zeros":           {func(c *v1alpha1.IPClaim) { c.ResourceVersion = "007" }, false},
		"a CIDR that is none":            {func(c *v1alpha1.IPClaim) { c.Spec.CIDR = "10.0.0.0" }, false},
		"a CIDR written otherwise":       {func(c *v1alpha1.IPClaim) { c.Spec.CIDR = "2001:DB8::/64" }, false},
		"more than is trimmed":           {func(c *v1alpha1.IPClaim) { c.Labels = map[string]string{"a": "b"} }, false},
		"not bound":                      {func(c *v1alpha1.IPClaim) { c.Status.Phase = v1alpha1.ClaimPending }, false},
	} {
		t.Run(name, func(t *testing.T) {
			claim := parse(t, storedClaim(t))
			Trim(claim)
			test.change(claim)
			kept := Pack(claim)
			form, packs := kept.(kubeutil.Packed)
			if packs != test.packs {
				t.Errorf("packed: %t, want %t", packs, test.packs)
			}
			if !packs {
				if kept != any(claim) {
					t.Errorf("kept %v, want the claim", kept)
				}
				return
			}
			if diff := cmp.Diff(claim, form.Unpack()); diff != "" {
				t.Error(diff)
			}
			key, err := cache.MetaNamespaceKeyFunc(kept)
			if want := claim.Namespace + "/" + claim.Name; err != nil || key != want {
				t.Errorf("the key is %q, %v, want %q", key, err, want)
			}
		})
	}
}

func TestObjectOfOtherKindIsNotPacked(t *testing.T) {
	other := &metav1.PartialObjectMetadata{}
	if kept := Pack(other); kept != any(other) {
		t.Errorf("kept %v, want the object", kept)
	}
}

// TestUnpackedClaimIsCopy expects that such a change does not reach the kept claim.
func TestUnpackedClaimIsCopy(t *testing.T) {
	claim := parse(t, storedClaim(t))
	claim.DeletionTimestamp = &metav1.Time{Time: time.Unix(1_800_000_000, 0)}
	Trim(claim)
	form := Pack(claim).(kubeutil.Packed)
	form.Unpack().(*v1alpha1.IPClaim).DeletionTimestamp.Time = time.Unix(0, 0)
	if diff := cmp.Diff(claim, form.Unpack()); diff != "" {
		t.Error(diff)
	}
}

// TestPackedClaimIsSmall fails when the kept form of a claim grows: with its record in the ledger
// it is the memory that the operator needs for each block.
func TestPackedClaimIsSmall(t *testing.T) {
	const most = 160 // bytes
	text := storedClaim(t)
	whole := heapOf(func() any { return parse(t, text) })
	small := heapOf(func() any {
		claim := parse(t, text)
		Trim(claim)
		return Pack(claim)
	})
	t.Logf("a claim takes %d bytes, %d as the cache has it", whole, small)
	if small > most {
		t.Errorf("a claim takes %d bytes in the cache, want %d at most", small, most)
	}
}
