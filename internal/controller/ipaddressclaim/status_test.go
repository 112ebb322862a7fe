package ipaddressclaim

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/cadastre-dev/cadastre/internal/testing/messages"
)

// TestRetriedErrors covers errors that the condition does not report, except a refusal by the
// API server of an object that the claim needs.
func TestRetriedErrors(t *testing.T) {
	records := schema.GroupResource{Group: "ipam.cadastre.dev", Resource: "ipallocations"}
	ending := apierrors.NewForbidden(records, "a", errors.New("the namespace is being terminated"))
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause, Field: "metadata.namespace"}}
	refused := `ipallocations.ipam.cadastre.dev "a" is forbidden: exceeded quota: remove the cause; it is tried again by itself`
	for name, test := range map[string]struct {
		err             error
		again           bool
		reason, message string
	}{
		"the namespace is being deleted": {err: fmt.Errorf("creating: %w", ending)},
		"a quota refuses it":             {apierrors.NewForbidden(records, "a", errors.New("exceeded quota")), true, "RecordRefused", refused},
		"there is a newer version":       {err: apierrors.NewConflict(records, "a", nil), again: true},
		"the API server is not there":    {err: errors.New("connection refused"), again: true},
		"a pool is not in the cache yet": {err: fmt.Errorf("looking: %w", apierrors.NewNotFound(records, "a")), again: true},
		"it asks too often":              {err: apierrors.NewTooManyRequests("slow down", 1), again: true},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := servedClaim()
			reason, message, retry := (&Controller{}).reason(s, test.err)
			if reason != test.reason || message != test.message || (retry != nil) != test.again {
				t.Errorf("got %q, %q, %v; want %q, %q, tried again: %t", reason, message, retry, test.reason, test.message, test.again)
			}
		})
	}
}

// TestServedClaimInConflictIsNotReady makes another record on the address of a claim: the claim keeps
// the address, and is not ready.
func TestServedClaimInConflictIsNotReady(t *testing.T) {
	s, record := servedClaim()
	rival := record
	rival.Name.Name, rival.UID, rival.Holder.Name, rival.HolderUID = "b-12345678", "rival", "b", "other"
	s.record = record
	c := attachReplica(allocatorWith(t, record, rival), &Controller{})
	if err := c.applyResult(s, nil); err != nil {
		t.Fatal(err)
	}
	ready := conditions.Get(s.claim, ipamv1.IPAddressClaimReadyCondition)
	if ready.Status != metav1.ConditionFalse || ready.Reason != ipamv1.IPAddressClaimReadyAllocationFailedReason ||
		ready.Message != "conflict: 10.0.0.1/32 is in use in pool hosts: have one of the two released" {
		t.Errorf("got %+v, want that it is not ready, with the reason", ready)
	}
	messages.Golden(t, []messages.Row{{Object: "IPAddressClaim", On: "condition Ready", Answer: "False, " + ready.Reason, Value: "10.0.0.1/32", Message: ready.Message}})
	if s.claim.Status.AddressRef.Name != "a" {
		t.Errorf("got address %q, want its own", s.claim.Status.AddressRef.Name)
	}
}
