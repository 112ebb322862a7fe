package ipclaim

import (
	"net/netip"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/replica"
)

// TestUpToDateClaimIsNotWritten changes one property after the other of a claim that is up to
// date, and of its record: a pass has to look at each.
func TestUpToDateClaimIsNotWritten(t *testing.T) {
	for name, test := range map[string]struct {
		claim  func(*v1alpha1.IPClaim)
		record func(*ipam.Record)
		rival  bool
		want   bool
	}{
		"nothing is wrong with it":               {want: true},
		"its record was made before it was":      {record: func(r *ipam.Record) { r.HolderUID = "" }, want: true},
		"its record is missing":                  {claim: func(c *v1alpha1.IPClaim) { c.Spec.AllocationName = "other" }},
		"its record is another holder's":         {record: func(r *ipam.Record) { r.Holder.Name = "b" }},
		"its record is of an earlier life":       {record: func(r *ipam.Record) { r.HolderUID = "earlier" }},
		"its record has another block":           {record: func(r *ipam.Record) { r.Block = netip.MustParsePrefix("10.0.1.0/28") }},
		"its record is being deleted":            {record: func(r *ipam.Record) { r.Terminating = true }},
		"its record is retained":                 {record: func(r *ipam.Record) { r.State = ipam.StateRetained }},
		"its record was taken over, not stamped": {record: func(r *ipam.Record) { r.Adopted, r.HolderUID = true, "" }},
		"its policy has changed":                 {claim: func(c *v1alpha1.IPClaim) { c.Spec.ReclaimPolicy = v1alpha1.ReclaimRetain }},
		"it has no block yet":                    {claim: func(c *v1alpha1.IPClaim) { c.Spec.AllocationName, c.Spec.CIDR = "", "" }},
		"it was restored, without status":        {claim: func(c *v1alpha1.IPClaim) { c.Status = v1alpha1.IPClaimStatus{} }},
		"its status is Pending":                  {claim: func(c *v1alpha1.IPClaim) { c.Status.Phase = v1alpha1.ClaimPending }},
		"it is not ready":                        {claim: func(c *v1alpha1.IPClaim) { c.Status.Conditions[0].Status = metav1.ConditionFalse }},
		"something else has its block":           {rival: true},
	} {
		t.Run(name, func(t *testing.T) {
			claim, record := boundClaim()
			if test.claim != nil {
				test.claim(claim)
			}
			if test.record != nil {
				test.record(&record)
			}
			records := []ipam.Record{record}
			if test.rival {
				records = append(records, rivalOf(record))
			}
			c := attachReplica(allocatorWith(t, records...), &Controller{})
			if got := c.isUpToDate(claim); got != test.want {
				t.Errorf("up to date is %t, want %t", got, test.want)
			}
			Trim(claim)
			if got := c.isUpToDate(claim); got != test.want {
				t.Errorf("up to date as the cache has it is %t, want %t", got, test.want)
			}
		})
	}
}

// rivalOf returns the record of another claim on a block that overlaps.
func rivalOf(record ipam.Record) ipam.Record {
	record.Name.Name, record.UID, record.HolderUID = "b-12345678", "rival", "rival"
	record.Holder = convert.HolderOfClaim(ipam.Name{Namespace: "team", Name: "b"})
	record.Block = netip.MustParsePrefix("10.0.0.0/24")
	return record
}

// boundClaim returns a claim that is Bound, and its record.
func boundClaim() (*v1alpha1.IPClaim, ipam.Record) {
	bits := int32(28)
	claim := &v1alpha1.IPClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a", UID: "uid"},
		Spec: v1alpha1.IPClaimSpec{
			PoolRef: &v1alpha1.PoolReference{Kind: v1alpha1.PoolKindIPPool, Name: "corporate"}, IPFamily: v1alpha1.IPv4, PrefixLength: &bits,
			CIDR: "10.0.0.0/28", AllocationName: "a-12345678", ReclaimPolicy: v1alpha1.ReclaimDelete,
		},
	}
	record := ipam.Record{
		Name: ipam.Name{Namespace: "team", Name: "a-12345678"}, UID: "record", Block: netip.MustParsePrefix("10.0.0.0/28"),
		Pool:   ipam.PoolKey{Kind: ipam.PoolKindIPPool, Name: "corporate"},
		Holder: convert.HolderOfClaim(ipam.Name{Namespace: "team", Name: "a"}), HolderUID: "uid",
		Purpose: ipam.PurposeClaim, Reclaim: ipam.ReclaimDelete, State: ipam.StateBound,
	}
	claim.Status = convert.ClaimBound(record, ipam.Pool{}).Status(claim.Status)
	return claim, record
}

// ownRecord returns the own record of the claims' pool.
func ownRecord() ipam.Record {
	pool := ipam.PoolNamed("corporate")
	return ipam.Record{
		Name: ipam.Name{Namespace: "system", Name: "ippool.corporate"}, UID: "own", Block: netip.MustParsePrefix("10.0.0.0/8"),
		Pool: ipam.DomainNamed("default", ipam.IPv4), Holder: convert.HolderOfPool(pool), Purpose: ipam.PurposePool, State: ipam.StateBound,
	}
}

// allocatorWith returns a replica with a view of these records, and of their pool's own.
func allocatorWith(t *testing.T, records ...ipam.Record) replica.Replica {
	t.Helper()
	return replica.WithRecords(t, replica.Options{}, append(records, ownRecord())...)
}
