package ipaddressclaim

import (
	"net/netip"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/testing/replica"
)

// TestUpToDateServedClaimIsNotWritten changes one property after the other of a claim that is served, of
// its IPAddress and of its record: a pass has to look at each.
func TestUpToDateServedClaimIsNotWritten(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*scope)
		record func(*ipam.Record)
		want   bool
	}{
		"nothing is wrong with it":          {want: true},
		"its IPAddress is missing":          {change: func(s *scope) { s.address = nil }},
		"its IPAddress is being deleted":    {change: func(s *scope) { s.address.DeletionTimestamp = &metav1.Time{Time: time.Now()} }},
		"its IPAddress has another address": {change: func(s *scope) { s.address.Spec.Address = "10.0.0.9" }},
		"its IPAddress is of another pool":  {change: func(s *scope) { s.address.Spec.PoolRef.Name = "other" }},
		"it is missing":                     {change: func(s *scope) { s.claim = nil }},
		"it is being deleted":               {change: func(s *scope) { s.claim.DeletionTimestamp = &metav1.Time{Time: time.Now()} }},
		"it has lost our finalizer":         {change: func(s *scope) { s.claim.Finalizers = nil }},
		"it was moved, without status":      {change: func(s *scope) { s.claim.Status = ipamv1.IPAddressClaimStatus{} }},
		"its status names no IPAddress":     {change: func(s *scope) { s.claim.Status.AddressRef.Name = "" }},
		"it has no condition":               {change: func(s *scope) { s.claim.Status.Conditions = nil }},
		"it has changed since":              {change: func(s *scope) { s.claim.Generation++ }},
		"its condition has another message": {change: func(s *scope) { s.claim.Status.Conditions[0].Message = "x" }},
		"its record is missing":             {record: func(r *ipam.Record) { r.Holder.Name = "other" }},
		"its record is of an earlier life":  {record: func(r *ipam.Record) { r.HolderUID = "earlier" }},
		"its record was made before it was": {record: func(r *ipam.Record) { r.HolderUID = "" }},
		"its record has another address":    {record: func(r *ipam.Record) { r.Block = netip.MustParsePrefix("10.0.0.9/32") }},
		"its record is of another pool":     {record: func(r *ipam.Record) { r.Pool.Name = "other" }},
		"its record is cooling down":        {record: func(r *ipam.Record) { r.State = ipam.StateCooling }},
		"it is in the queue":                {change: func(s *scope) { s.request.Sticky = "wait" }},
	} {
		t.Run(name, func(t *testing.T) {
			s, record := servedClaim()
			c := &Controller{}
			s.record = record
			attachReplica(allocatorWith(t, record), c)
			if err := c.applyResult(s, nil); err != nil {
				t.Fatal(err)
			}
			if test.record != nil {
				test.record(&record)
				attachReplica(allocatorWith(t, record), c)
			}
			if test.change != nil {
				test.change(s)
			}
			if s.request.Sticky == "wait" {
				c.Queue.Wait(s.waiter())
			}
			if got := c.isServed(s); got != test.want {
				t.Errorf("served is %t, want %t", got, test.want)
			}
		})
	}
}

// servedClaim returns a claim with its IPAddress, but without status, and its record.
func servedClaim() (*scope, ipam.Record) {
	ref := ipamv1.IPPoolReference{APIGroup: v1alpha1.GroupVersion.Group, Kind: "IPPool", Name: "hosts"}
	name := ipam.Name{Namespace: "team", Name: "a"}
	meta := metav1.ObjectMeta{Namespace: "team", Name: "a"}
	s := &scope{
		name: name, claim: &ipamv1.IPAddressClaim{ObjectMeta: meta, Spec: ipamv1.IPAddressClaimSpec{PoolRef: ref}},
		address: &ipamv1.IPAddress{ObjectMeta: meta, Spec: ipamv1.IPAddressSpec{PoolRef: ref, Address: "10.0.0.1"}},
	}
	s.claim.UID, s.claim.Generation, s.claim.Finalizers = "uid", 1, []string{v1alpha1.FinalizerRelease}
	s.request, _ = convert.AddressRequest(addressClaimOf(s.claim))
	return s, ipam.Record{
		Name: ipam.Name{Namespace: "team", Name: "a-12345678"}, UID: "record", Block: netip.MustParsePrefix("10.0.0.1/32"),
		Pool: ipam.PoolKey{Kind: ipam.PoolKindIPPool, Name: "hosts"}, Holder: s.holder(), HolderUID: "uid",
		Purpose: ipam.PurposeClaim, Reclaim: ipam.ReclaimDelete, State: ipam.StateBound,
	}
}

// allocatorWith returns an allocator with a view of these records.
func allocatorWith(t *testing.T, records ...ipam.Record) replica.Replica {
	t.Helper()
	if len(records) > 0 {
		records = append(records, ownRecordOf(records[0]))
	}
	return replica.WithRecords(t, replica.Options{}, records...)
}

// ownRecordOf returns the own record of a record's pool.
func ownRecordOf(record ipam.Record) ipam.Record {
	family := ipam.FamilyOf(record.Block)
	return ipam.Record{
		Name: ipam.Name{Namespace: "system", Name: "ippool." + record.Pool.Name}, UID: "own", Block: family.All(),
		Pool: ipam.DomainNamed("default", family), Holder: convert.HolderOfPool(record.Pool), Purpose: ipam.PurposePool, State: ipam.StateBound,
	}
}

// emptyAllocator returns an allocator with a view without records, and no pool.
func emptyAllocator(t *testing.T) replica.Replica {
	t.Helper()
	view := ledger.New(ledger.Options{Clock: clock.RealClock{}, Silence: time.Minute})
	return replica.New(replica.Options{Ledger: view})
}

// schemeOf returns a scheme with the kinds that are added.
func schemeOf(t *testing.T, add ...func(*runtime.Scheme) error) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, f := range add {
		if err := f(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

func holderNamed(namespace, name string) ipam.Holder {
	return convert.HolderOfAddressClaim(ipam.Name{Namespace: namespace, Name: name})
}
