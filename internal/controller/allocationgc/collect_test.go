package allocationgc

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// TestRecordIsHeldByObjectNamingIt stores a record of an object of the UID "uid", or one that
// was made before its object had a UID, and another object under the name of the holder.
func TestRecordIsHeldByObjectNamingIt(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "team", Name: "a", UID: "uid"}
	claim := func(uid types.UID, record string) client.Object {
		claim := &v1alpha1.IPClaim{ObjectMeta: meta}
		claim.UID, claim.Spec.AllocationName = uid, record
		return claim
	}
	pool := func(uid types.UID, cidr string) client.Object {
		pool := &v1alpha1.LocalIPPool{ObjectMeta: meta}
		pool.UID, pool.Spec.CIDR = uid, cidr
		return pool
	}
	ranges := func(texts ...string) client.Object {
		pool := pool("uid", "10.0.0.0/16").(*v1alpha1.LocalIPPool)
		pool.Spec.Occupies, pool.Spec.Ranges = v1alpha1.OccupiesRanges, texts
		return pool
	}
	withoutCIDR, ofItself := ranges().(*v1alpha1.LocalIPPool), ranges("10.0.1.0/24").(*v1alpha1.LocalIPPool)
	withoutCIDR.Spec.CIDR = ""
	ofItself.Spec.ParentRef = &v1alpha1.PoolReference{Kind: v1alpha1.PoolKindLocalIPPool, Name: "a"}
	ofClaim := convert.HolderOfClaim(ipam.Name{Namespace: "team", Name: "a"})
	ofPool := convert.HolderOfPool(ipam.PoolKey{Kind: ipam.PoolKindLocalIPPool, Namespace: "team", Name: "a"})
	inCluster := convert.HolderOfPool(ipam.PoolKey{Kind: ipam.PoolKindInClusterIPPool, Namespace: "team", Name: "a"})
	other := ipam.Holder{Group: "g", Kind: "Thing", Namespace: "team", Name: "a"}
	for name, test := range map[string]struct {
		holder ipam.Holder
		uid    string
		stored client.Object
		want   bool
	}{
		"a claim that names it":                               {ofClaim, "uid", claim("uid", "record"), true},
		"a claim that names it, of a record without UID":      {ofClaim, "", claim("uid", "record"), true},
		"a claim that names another":                          {ofClaim, "uid", claim("uid", "another"), false},
		"a claim that names none":                             {ofClaim, "uid", claim("uid", ""), false},
		"the next claim of the name":                          {ofClaim, "uid", claim("next", "record"), false},
		"a claim that is gone":                                {ofClaim, "uid", nil, false},
		"a claim that is gone, and a pool of its name":        {ofClaim, "uid", pool("uid", "10.0.0.0/24"), false},
		"a pool of its CIDR":                                  {ofPool, "uid", pool("uid", "10.0.0.0/24"), true},
		"a pool of its CIDR, of a record without UID":         {ofPool, "", pool("uid", "10.0.0.0/24"), true},
		"a pool of another CIDR":                              {ofPool, "uid", pool("uid", "10.0.1.0/24"), false},
		"a pool of its range":                                 {ofPool, "uid", ranges("10.0.0.0/24"), true},
		"a pool of ranges that cannot be read":                {ofPool, "uid", ranges("here"), true},
		"a pool of other ranges, of a record without UID":     {ofPool, "", ranges("10.0.1.0/24"), false},
		"a pool of ranges without a CIDR yet":                 {ofPool, "uid", withoutCIDR, true},
		"a pool of other ranges whose parent is wrong":        {ofPool, "", ofItself, true},
		"a pool of a provider that is not served":             {inCluster, "uid", nil, true},
		"the next pool of the name":                           {ofPool, "uid", pool("next", "10.0.0.0/24"), false},
		"a pool that is gone":                                 {ofPool, "uid", nil, false},
		"an object of a kind that is not known at the moment": {other, "uid", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			suite.Must(t, v1alpha1.AddToScheme(scheme))
			there := fake.NewClientBuilder().WithScheme(scheme)
			if test.stored != nil {
				there = there.WithObjects(test.stored)
			}
			record := ipam.Record{
				Name: ipam.Name{Namespace: "team", Name: "record"}, Block: netip.MustParsePrefix("10.0.0.0/24"), Holder: test.holder, HolderUID: test.uid,
			}
			held, err := (&Controller{}).holds(t.Context(), there.Build(), record)
			if err != nil || held != test.want {
				t.Errorf("it is held: %t, %v; want %t", held, err, test.want)
			}
		})
	}
}

func TestOwnRecordOfPoolThatStaysIsKnown(t *testing.T) {
	catalog := inventory.New(inventory.Options{})
	c := &Controller{Catalog: catalog, InCluster: true}
	ranges, whole, inCluster := ipam.PoolNamed("ranges"), ipam.PoolNamed("whole"), ipam.PoolKey{Kind: ipam.PoolKindGlobalInClusterIPPool, Name: "p"}
	block := netip.MustParsePrefix("10.0.0.0/24")
	occupied := space.NewRanges(block, []space.Range{space.RangeOf(block)})
	catalog.SetPool(ipam.Pool{Key: ranges, Spec: ipam.Revision{UID: "1"}, Occupied: occupied})
	catalog.SetPool(ipam.Pool{Key: whole, Spec: ipam.Revision{UID: "1"}})
	for name, test := range map[string]struct {
		pool ipam.PoolKey
		uid  string
		want bool
	}{
		"ranges": {ranges, "1", true}, "ranges of a former pool": {ranges, "0", false}, "a whole CIDR": {whole, "1", false}, "a pool that is gone": {ipam.PoolNamed("gone"), "", false},
	} {
		if got := c.poolStays(ipam.Record{Holder: convert.HolderOfPool(test.pool), HolderUID: test.uid}); got != test.want {
			t.Errorf("the pool of %s stays: %t", name, got)
		}
	}
	obj := &incluster.GlobalInClusterIPPool{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "1"}}
	if !c.isOwn(obj, ipam.Record{Holder: convert.HolderOfPool(inCluster), HolderUID: "1", Block: netip.MustParsePrefix("10.0.0.0/32")}) {
		t.Error("a record that its controller releases is no record of its pool")
	}
}

// TestRecordOfOtherKindIsJudgedByRegisteredKind covers a kind before and after it is
// registered.
func TestRecordOfOtherKindIsJudgedByRegisteredKind(t *testing.T) {
	failure := errors.New("not now")
	c := &Controller{judges: map[string]Judge{"Thing": func(_ context.Context, _ client.Reader, record ipam.Record) (bool, error) {
		return record.Name.Name == "held", failure
	}}}
	for name, want := range map[string]bool{"held": true, "orphan": false} {
		record := ipam.Record{Name: ipam.Name{Name: name}, Holder: ipam.Holder{Group: "g", Kind: "Thing"}}
		if held, err := c.holds(t.Context(), nil, record); held != want || !errors.Is(err, failure) {
			t.Errorf("%s is held: %t, %v; want %t and the error", name, held, err, want)
		}
	}
}

func TestReleaseReason(t *testing.T) {
	name := func(n string) ipam.Name { return ipam.Name{Namespace: "team", Name: n} }
	c := &Controller{deletedHolders: map[ipam.Name]string{name("seen"): ""}}
	for description, test := range map[string]struct {
		record ipam.Record
		want   metrics.ReleaseReason
	}{
		"its claim was seen to go":        {ipam.Record{Name: name("seen"), Purpose: ipam.PurposeClaim, State: ipam.StateBound}, metrics.HolderDeleted},
		"it has no claim":                 {ipam.Record{Name: name("other"), Purpose: ipam.PurposeClaim, State: ipam.StateBound}, metrics.Orphaned},
		"its retention is over":           {ipam.Record{Name: name("seen"), State: ipam.StateRetained}, metrics.RetentionExpired},
		"its retention was ended by hand": {ipam.Record{Name: name("seen"), State: ipam.StateRetained, Terminating: true}, metrics.Deleted},
		"it has cooled down":              {ipam.Record{Name: name("seen"), State: ipam.StateCooling, Terminating: true}, metrics.ReuseDelayOver},
	} {
		if got := c.reasonOf(test.record); got != test.want {
			t.Errorf("%s: %s, want %s", description, got, test.want)
		}
	}
}

func TestRetainedBlockEvent(t *testing.T) {
	record := recordNamed("a", ipam.StateBound)
	record.Holder = convert.HolderOfClaim(record.Name)
	message := retained(record, time.Unix(1_800_000_000, 0))
	messages.Golden(t, []messages.Row{{Object: "IPAllocation", On: "event", Answer: "Normal, Retained", Value: record.Block.String(), Message: message}})
}
