package ledger

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// inDomain returns a request for a block of a routing domain, as a root pool makes it for its CIDR.
func askInDomain(name, block string) Ask {
	return Ask{
		Pool: ipam.PoolKey{Kind: ipam.PoolKindRoutingDomain, Name: name, Family: ipam.IPv4}, Block: netip.MustParsePrefix(block), Bits: 24,
		Record: ipam.Name{Namespace: "system", Name: "ippool." + name}, Holder: ipam.Holder{Kind: "IPPool", Name: name},
	}
}

func TestUnusedRoutingDomainIsForgotten(t *testing.T) {
	l := newLedger(1)
	must(t, feed{l}.Replace(nil, "1"))
	before := len(l.poolViews)
	expect := func(when string, more int) {
		t.Helper()
		if got := len(l.poolViews) - before; got != more {
			t.Errorf("%s there are %d routing domains, want %d", when, got, more)
		}
	}
	for i := range 100 {
		asked := askInDomain(fmt.Sprint("domain-", i), "10.1.0.0/24")
		if _, err := l.Peek(asked); err != nil {
			t.Fatal(err)
		}
		asked.InUse = true
		if _, err := l.Peek(asked); err != nil {
			t.Fatal(err)
		}
	}
	expect("after questions", 0)

	asked := askInDomain("domain", "10.1.0.0/24")
	hold := mustHold(t, l, asked)
	expect("while a block is held", 1)
	hold.Drop()
	expect("after the hold", 0)

	object := allocation("ippool.domain", "uid", "2", "10.1.0.0/24")
	object.Spec.PoolRef, object.Spec.RoutingDomain, object.Spec.Purpose = nil, "domain", v1alpha1.PurposePool
	must(t, feed{l}.Add(object))
	expect("while a pool is recorded", 1)
	if _, err := l.Hold(asked); err == nil {
		t.Error("its block is held twice")
	} else if _, ok := errors.AsType[*ipam.TakenError](err); !ok {
		t.Error(err)
	}
	frees := l.Frees([]ipam.PoolKey{asked.Pool})
	must(t, feed{l}.Delete(object))
	expect("when the record is gone", 0)
	if !l.AwaitRelease(t.Context(), []ipam.PoolKey{asked.Pool}, ipam.Holder{}, frees, 0) {
		t.Error("that its block was freed is forgotten with it")
	}
}

func TestAwaitedRoutingDomainIsKept(t *testing.T) {
	l := newLedger(1)
	must(t, feed{l}.Replace(nil, "1"))
	keys := []ipam.PoolKey{askInDomain("domain", "10.1.0.0/24").Pool}
	hold := mustHold(t, l, askInDomain("domain", "10.1.0.0/24"))
	wake := make(chan struct{}, 1)
	l.subscribe(keys, wake)
	hold.Drop()
	select {
	case <-wake:
	default:
		t.Fatal("it is not notified that the block was freed")
	}
	if l.poolViews[keys[0]] == nil {
		t.Error("it is forgotten while it is awaited")
	}
	l.unsubscribe(keys, wake)
	if l.poolViews[keys[0]] != nil {
		t.Error("it is not forgotten afterwards")
	}
}

func TestCoolingBlockOfDeletedRecordIsNotPending(t *testing.T) {
	l := newLedger(1)
	must(t, feed{l}.Replace(nil, "1"))
	for state, want := range map[ipam.State]bool{ipam.StateBound: true, ipam.StateRetained: true, ipam.StateCooling: false} {
		object := allocation(string(state), "uid-"+string(state), "2", "10.0.0.64/28")
		must(t, feed{l}.Add(object))
		changed := allocation(string(state), "uid-"+string(state), "3", "10.0.0.64/28")
		changed.Spec.State = v1alpha1.AllocationState(state)
		changed.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		must(t, feed{l}.Update(changed))
		if got := l.IsLeaving(ipam.Name{Namespace: "ns", Name: string(state)}); got != want {
			t.Errorf("%s: on its way: %t, want %t", state, got, want)
		}
	}
}
