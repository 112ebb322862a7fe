package ipclaim

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/authorize"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/replica"
	"github.com/cadastre-dev/cadastre/internal/testing/story"
)

// errBroken is the error of an API server that does not answer.
var errBroken = errors.New("broken")

// broken returns a client of such an API server.
func broken(t *testing.T) client.WithWatch {
	t.Helper()
	return fake.NewClientBuilder().WithScheme(schemeOf(t)).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errBroken
		},
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return errBroken },
	}).Build()
}

func schemeOf(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return scheme
}

// TestInvalidClaimIsNotServed covers a claim that was stored without the checks of the API server.
func TestInvalidClaimIsNotServed(t *testing.T) {
	claim, record := boundClaim()
	claim.Spec.CIDR = "10.0.0.1/28"
	c := attachReplica(allocatorWith(t, record), &Controller{})
	err := c.bindOrVerify(t.Context(), &scope{claim: claim})
	if _, ok := errors.AsType[*ipam.PolicyError](err); !ok {
		t.Errorf("got %v, want that the claim is not valid", err)
	}
}

// TestUnansweredQuestionForRightIsReturned lets the API server not answer who can use a pool.
func TestUnansweredQuestionForRightIsReturned(t *testing.T) {
	claim, record := boundClaim()
	claim.Spec.CIDR, claim.Spec.AllocationName = "", ""
	claim.Annotations = map[string]string{v1alpha1.AnnotationRequestedBy: story.Deployer}
	there := broken(t)
	asker := authorize.NewAsker(authorize.NewRights(there), there, clocktesting.NewFakePassiveClock(claim.CreationTimestamp.Time))
	c := attachReplica(allocatorWith(t, record), &Controller{Asker: asker})
	c.Catalog.SetProject("team", "ours")
	c.Catalog.SetPool(ipam.Pool{Key: record.Pool, CIDR: ownRecord().Block, Project: "theirs"})
	if err := c.bindOrVerify(t.Context(), &scope{claim: claim}); !errors.Is(err, errBroken) {
		t.Errorf("got %v, want %v", err, errBroken)
	}
}

// TestRecordMissingInViewIsLookedFor covers a claim whose record the view does not show, without a status.
func TestRecordMissingInViewIsLookedFor(t *testing.T) {
	claim, record := boundClaim()
	claim.Status = v1alpha1.IPClaimStatus{}
	noPool := &ipam.MissingError{}
	for name, test := range map[string]struct {
		live client.Client
		is   func(error) bool
	}{
		"stored":        {fake.NewClientBuilder().WithScheme(schemeOf(t)).WithObjects(convert.Allocation(record)).Build(), func(err error) bool { return errors.Is(err, errNotSeen) }},
		"not stored":    {fake.NewClientBuilder().WithScheme(schemeOf(t)).Build(), func(err error) bool { return errors.As(err, &noPool) && noPool.Reason == v1alpha1.ReasonPoolNotFound }},
		"it is unknown": {broken(t), func(err error) bool { return errors.Is(err, errBroken) }},
	} {
		t.Run(name, func(t *testing.T) {
			c := attachReplica(allocatorWith(t), &Controller{Live: test.live})
			c.Catalog.SetProject("team", "ours")
			if err := c.bindOrVerify(t.Context(), &scope{claim: claim}); !test.is(err) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestClaimKeepsTermsOfMissingPool covers a claim whose status names a pool that is not restored yet.
func TestClaimKeepsTermsOfMissingPool(t *testing.T) {
	for policy, want := range map[v1alpha1.ReclaimPolicy]ipam.Reclaim{"": ipam.ReclaimDelete, v1alpha1.ReclaimRetain: ipam.ReclaimRetain} {
		claim, record := boundClaim()
		claim.Spec.PoolRef, claim.Spec.ClassName, claim.Spec.ReclaimPolicy = nil, "gold", policy
		c := attachReplica(allocatorWith(t), &Controller{})
		c.Catalog.SetProject("team", "ours")
		s := &scope{claim: claim}
		if err := readRequest(s); err != nil {
			t.Fatal(err)
		}
		pool, resolution, err := c.formerPool(t.Context(), s)
		terms := resolution.Terms
		if err != nil || pool != record.Pool || terms.Block != record.Block || terms.Length != 28 || terms.Class != "gold" || terms.Reclaim != want {
			t.Errorf("got %v, %+v and %v, want the block, the length, the class and the policy %s of the claim", pool, terms, err, want)
		}
	}
}

// TestConflictOfTakenOverRecordIsReported covers a record that was taken over for a claim, and overlaps
// another.
func TestConflictOfTakenOverRecordIsReported(t *testing.T) {
	claim, record := boundClaim()
	rival := rivalOf(record)
	record.HolderUID, rival.HolderUID, record.Adopted = "", "", true // both were made at admission
	stored := convert.Allocation(record)
	stored.UID, stored.ResourceVersion = "record", "3" // as the view has it
	there := fake.NewClientBuilder().WithScheme(schemeOf(t)).WithObjects(claim, stored).Build()
	c := attachReplica(replica.WithRecords(t, replica.Options{Client: there}, ownRecord(), rival, record), &Controller{Client: there, Live: there})
	c.Ledger.SetClaimed(record.Name, true)
	c.Ledger.SetClaimed(rival.Name, true)
	s := &scope{claim: claim}
	if err := c.bindOrVerify(t.Context(), s); err != nil || s.conflict == "" || s.record.HolderUID != "uid" {
		t.Errorf("got %v, the conflict %q and the record %+v, want a conflict and the claim's UID", err, s.conflict, s.record)
	}
}

// TestErrorDecidesRetry covers the errors that a pass reports in the status. A claim that has no
// block yet waits for its turn.
func TestErrorDecidesRetry(t *testing.T) {
	taken, missing := &ipam.TakenError{}, &ipam.MissingError{Reason: v1alpha1.ReasonPoolNotFound}
	for name, test := range map[string]struct {
		record string
		err    error
		want   bool
	}{
		"a waiting claim's block is taken":   {"", taken, false},
		"a bound claim's block is taken":     {"a-12345678", taken, true},
		"a bound claim's pool is missing":    {"a-12345678", missing, false},
		"a claim lost its turn":              {"", &ipam.ParkedError{Reason: v1alpha1.ReasonLimitReached}, false},
		"a claim lost its turn by a failure": {"", &ipam.ParkedError{Reason: v1alpha1.ReasonRecordRefused, Cause: errBroken}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scope{claim: &v1alpha1.IPClaim{Spec: v1alpha1.IPClaimSpec{AllocationName: test.record}}}
			outcome, retry := (&Controller{}).outcome(s, test.err)
			if outcome.Reason == "" || (retry != nil) != test.want {
				t.Errorf("got %+v, %v, want a reason, and that it is tried again: %t", outcome, retry, test.want)
			}
		})
	}
}
