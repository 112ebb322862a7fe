package ipclaim

import (
	"encoding/json"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// storedClaim is a claim that is bound as the API server sends it.
func storedClaim(t *testing.T) []byte {
	t.Helper()
	claim, _ := settledClaim()
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

// TestASlimClaimSaysTheSame but for the conditions, which are left out where they
// follow from the rest.
func TestASlimClaimSaysTheSame(t *testing.T) {
	slim := Slimmer()
	for name, test := range map[string]struct {
		change func(*v1alpha1.IPClaim)
		want   bool // left out
	}{
		"bound":            {want: true},
		"with annotations": {func(c *v1alpha1.IPClaim) { c.Annotations = map[string]string{"a": "b"} }, true},
		"with a condition of somebody's": {func(c *v1alpha1.IPClaim) {
			c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{Type: "Seen"})
		}, true},
		"of an earlier generation": {func(c *v1alpha1.IPClaim) { c.Generation++ }, false},
		"pending":                  {func(c *v1alpha1.IPClaim) { c.Status.Phase = v1alpha1.ClaimPending }, false},
		"without a pool":           {func(c *v1alpha1.IPClaim) { c.Status.PoolRef = nil }, false},
		"without a block":          {func(c *v1alpha1.IPClaim) { c.Status.AllocatedCIDR = "" }, false},
		"of another block":         {func(c *v1alpha1.IPClaim) { c.Status.AllocatedCIDR = "10.0.1.0/28" }, false},
		"with a condition less":    {func(c *v1alpha1.IPClaim) { c.Status.Conditions = c.Status.Conditions[1:] }, false},
		"without conditions":       {func(c *v1alpha1.IPClaim) { c.Status.Conditions = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			claim := parse(t, storedClaim(t))
			if test.change != nil {
				test.change(claim)
			}
			want := claim.DeepCopy()
			slim(claim)
			if isSlim(claim) != test.want {
				t.Errorf("its conditions are left out: %t, want %t", isSlim(claim), test.want)
			}
			if test.want {
				want.Status.Conditions = claim.Status.Conditions
			}
			if diff := cmp.Diff(want, claim); diff != "" {
				t.Error(diff)
			}
			again := claim.DeepCopy()
			slim(again)
			if diff := cmp.Diff(claim, again); diff != "" {
				t.Errorf("made slim twice: %s", diff)
			}
		})
	}
}

func TestASlimClaimIsWithoutWhatKubectlApplied(t *testing.T) {
	claim := parse(t, storedClaim(t))
	claim.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "a": "b"}
	Slimmer()(claim)
	if diff := cmp.Diff(map[string]string{"a": "b"}, claim.Annotations); diff != "" {
		t.Error(diff)
	}
}

// TestASlimClaimIsSmall fails when what is kept of a claim grows: with its record in
// the ledger it is what the operator needs for each block.
func TestASlimClaimIsSmall(t *testing.T) {
	const most = 750 // bytes
	text, slim := storedClaim(t), Slimmer()
	plain := heapOf(func() any { return parse(t, text) })
	small := heapOf(func() any {
		claim := parse(t, text)
		slim(claim)
		return claim
	})
	t.Logf("a claim takes %d bytes, %d as the cache has it", plain, small)
	if small > most {
		t.Errorf("a claim takes %d bytes in the cache, want %d at most", small, most)
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
