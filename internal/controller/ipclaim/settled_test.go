package ipclaim

import (
	"net/netip"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fcache "k8s.io/client-go/tools/cache/testing"
	"k8s.io/utils/clock"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/adapt"
	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// TestASettledClaimIsLeftAlone changes one thing after the other of a claim that
// is settled, and of its record: a pass has to look at each.
func TestASettledClaimIsLeftAlone(t *testing.T) {
	for name, test := range map[string]struct {
		claim  func(*v1alpha1.IPClaim)
		record func(*ipam.Record)
		want   bool
	}{
		"nothing is wrong with it":               {want: true},
		"its record was made before it was":      {record: func(r *ipam.Record) { r.HolderUID = "" }, want: true},
		"its record is missing":                  {claim: func(c *v1alpha1.IPClaim) { c.Spec.AllocationName = "other" }},
		"its record is another holder's":         {record: func(r *ipam.Record) { r.Holder.Name = "b" }},
		"its record is of an earlier life":       {record: func(r *ipam.Record) { r.HolderUID = "earlier" }},
		"its record has another block":           {record: func(r *ipam.Record) { r.Block = netip.MustParsePrefix("10.0.1.0/28") }},
		"its record is of another pool":          {record: func(r *ipam.Record) { r.Pool.Name = "other" }},
		"its record is being deleted":            {record: func(r *ipam.Record) { r.Terminating = true }},
		"its record is retained":                 {record: func(r *ipam.Record) { r.State = ipam.Retained }},
		"its record was taken over, not stamped": {record: func(r *ipam.Record) { r.Adopted, r.HolderUID = true, "" }},
		"its policy has changed":                 {claim: func(c *v1alpha1.IPClaim) { c.Spec.ReclaimPolicy = v1alpha1.ReclaimRetain }},
		"it has no block yet":                    {claim: func(c *v1alpha1.IPClaim) { c.Spec.AllocationName, c.Spec.CIDR = "", "" }},
		"it was restored, without status":        {claim: func(c *v1alpha1.IPClaim) { c.Status = v1alpha1.IPClaimStatus{} }},
		"its status is of an earlier generation": {claim: func(c *v1alpha1.IPClaim) { c.Generation++ }},
		"its status says Pending":                {claim: func(c *v1alpha1.IPClaim) { c.Status.Phase = v1alpha1.ClaimPending }},
		"its status has another block":           {claim: func(c *v1alpha1.IPClaim) { c.Status.AllocatedCIDR = "10.0.1.0/28" }},
		"its status has no pool":                 {claim: func(c *v1alpha1.IPClaim) { c.Status.PoolRef = nil }},
		"its status names another record":        {claim: func(c *v1alpha1.IPClaim) { c.Status.BoundAllocationRef.Name = "other" }},
		"a condition is missing":                 {claim: func(c *v1alpha1.IPClaim) { c.Status.Conditions = c.Status.Conditions[1:] }},
		"a condition says something else":        {claim: func(c *v1alpha1.IPClaim) { c.Status.Conditions[0].Message = "x" }},
		"it is being deleted":                    {claim: func(c *v1alpha1.IPClaim) { c.DeletionTimestamp = &metav1.Time{Time: time.Now()} }},
	} {
		t.Run(name, func(t *testing.T) {
			claim, record := settledClaim()
			if test.claim != nil {
				test.claim(claim)
			}
			if test.record != nil {
				test.record(&record)
			}
			c := &Controller{Allocator: allocatorWith(t, record)}
			if got := c.settled(claim); got != test.want {
				t.Errorf("settled is %t, want %t", got, test.want)
			}
			Slimmer()(claim)
			if got := c.settled(claim); got != test.want {
				t.Errorf("settled as the cache has it is %t, want %t", got, test.want)
			}
		})
	}
}

// settledClaim is a claim as a pass has left it, and its record.
func settledClaim() (*v1alpha1.IPClaim, ipam.Record) {
	bits := int32(28)
	claim := &v1alpha1.IPClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a", UID: "uid", Generation: 1},
		Spec: v1alpha1.IPClaimSpec{
			PoolRef: &v1alpha1.PoolReference{Kind: v1alpha1.KindIPPool, Name: "corporate"}, IPFamily: v1alpha1.IPv4, PrefixLength: &bits,
			CIDR: "10.0.0.0/28", AllocationName: "a-12345678", ReclaimPolicy: v1alpha1.ReclaimDelete,
		},
	}
	record := ipam.Record{
		Name: ipam.Name{Namespace: "team", Name: "a-12345678"}, UID: "record", Block: netip.MustParsePrefix("10.0.0.0/28"),
		Pool:   ipam.PoolKey{Kind: ipam.KindPool, Name: "corporate"},
		Holder: allocator.HolderOfClaim(ipam.Name{Namespace: "team", Name: "a"}), HolderUID: "uid",
		Purpose: ipam.ForClaim, Reclaim: ipam.Delete, State: ipam.Bound,
	}
	bound(record).writeTo(&scope{claim: claim, record: record})
	return claim, record
}

// allocatorWith has a picture of these records.
func allocatorWith(t *testing.T, records ...ipam.Record) *allocator.Allocator {
	t.Helper()
	picture := ledger.New(ledger.Options{Clock: clock.RealClock{}, Silence: time.Minute})
	seen := make(chan struct{}, len(records))
	picture.Follow(func(ledger.Change) { seen <- struct{}{} })
	from := fcache.NewFakeControllerSource()
	for _, record := range records {
		obj := adapt.Allocation(record)
		obj.UID = types.UID(record.UID)
		if record.Terminating {
			obj.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		}
		from.Add(obj)
	}
	go picture.Run(t.Context(), from, &v1alpha1.IPAllocation{})
	for range records {
		<-seen
	}
	return allocator.New(allocator.Options{Ledger: picture, Catalogue: allocator.NewCatalogue("")})
}
