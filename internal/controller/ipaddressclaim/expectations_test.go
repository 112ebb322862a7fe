package ipaddressclaim

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
)

// TestShownAddressEndsExpectation settles an attempt to create an IPAddress, and shows an IPAddress.
func TestShownAddressEndsExpectation(t *testing.T) {
	quota := apierrors.NewForbidden(schema.GroupResource{Resource: "ipaddresses"}, "a", errors.New("a quota"))
	for name, test := range map[string]struct {
		err                        error
		shown                      types.UID
		isOurs, isUnsure, isComing bool
	}{
		"it was stored": {shown: "made", isOurs: true},
		"it was stored, and a former one is shown":  {shown: "former", isComing: true},
		"it may have been stored":                   {err: errors.New("EOF"), shown: "made", isOurs: true, isUnsure: true},
		"it was refused, and another one is stored": {err: quota, shown: "another"},
	} {
		t.Run(name, func(t *testing.T) {
			address := &ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a", UID: test.shown}}
			e, attempt := &expectations{}, creation{}
			e.creations.Store(nameOf(address), attempt)
			e.settleAddress(nameOf(address), attempt, "made", test.err)
			observed, isOurs := e.observeAddress(address)
			_, isComing := e.creations.Load(nameOf(address))
			if isOurs != test.isOurs || observed.isUnsure != test.isUnsure || isComing != test.isComing {
				t.Errorf("it is ours: %t, unsure: %t, still expected: %t; want %t, %t, %t", isOurs, observed.isUnsure, isComing, test.isOurs, test.isUnsure, test.isComing)
			}
		})
	}
}

// TestDeletedClaimEndsItsRemoval covers a claim that a restore of etcd brings back in the version from
// which the finalizer was removed.
func TestDeletedClaimEndsItsRemoval(t *testing.T) {
	s, _ := servedClaim()
	e := &expectations{}
	e.claims.byName.Store(s.name, removal{version: "1"})
	e.observeDeletedClaim(s.claim)
	if last := e.claims.last(s.name); last != (removal{}) {
		t.Errorf("the removal %+v is still known", last)
	}
}
