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
	"github.com/cadastre-dev/cadastre/internal/ipam"
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
	ofClaim := convert.HolderOfClaim(ipam.Name{Namespace: "team", Name: "a"})
	ofPool := convert.HolderOfPool(ipam.PoolKey{Kind: ipam.PoolKindLocalIPPool, Namespace: "team", Name: "a"})
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
