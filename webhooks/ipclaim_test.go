package webhooks

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/queue"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
	"github.com/cadastre-dev/cadastre/internal/testing/replica"
)

// inNew sends an object in a namespace that was made a moment ago.
func (s *stage) inNew(t *testing.T, kind, spec string) (answer string) {
	t.Helper()
	must(t, s.store.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "new"}}))
	req := review(kind, `{"metadata":{"name":"c"},"spec":`+spec+`}`, "", 0)
	req.Namespace = "new"
	return s.answer(t, req)
}

func TestObjectInNewNamespaceIsServed(t *testing.T) {
	for kind, spec := range map[string]string{"IPClaim": `{}`, "LocalIPPool": `{"parentRef":{"kind":"IPPool","name":"p"},"prefixLength":26}`} {
		s := newStage(t)
		if answer := s.inNew(t, kind, spec); !strings.Contains(answer, `"10.0.0.0/2`) {
			t.Errorf("the %s is answered: %s", kind, answer)
		}
		s = newStage(t)
		s.fails.Store("get Namespace", ipam.ErrCrowded)
		if answer := s.inNew(t, kind, spec); !strings.HasPrefix(answer, "429") || !strings.Contains(answer, "reading namespace new") {
			t.Errorf("the %s is answered, while the namespace cannot be read: %s", kind, answer)
		}
	}
}

func TestWaitingClaimInUnservedNamespaceStatesReason(t *testing.T) {
	s := newStage(t)
	s.services.Queue = queue.New(queue.Options{Ledger: s.Ledger, Catalog: s.Catalog, WatchNamespace: "team"})
	answer := s.inNew(t, "IPClaim", `{"className":"missing"}`)
	if !strings.Contains(answer, v1alpha1.ReasonNotServed) || strings.Count(answer, "does not serve namespace new") != 3 { // two conditions, and the warning
		t.Errorf("it is answered: %s", answer)
	}
	rows, err := messages.AnswersIn("== create IPClaim: in such a namespace\n" + answer)
	must(t, err)
	messages.Golden(t, rows)
	req := review("IPClaim", claimJSON(`{"className":"missing"}`), "", 0)
	if answer := s.answer(t, req); strings.Contains(answer, v1alpha1.ReasonNotServed) {
		t.Errorf("one in a namespace that is served is answered: %s", answer)
	}
}

func TestUpdateOutsideRequestFails(t *testing.T) {
	claim, v := &v1alpha1.IPClaim{}, validator[*v1alpha1.IPClaim]{}
	if _, err := v.ValidateUpdate(t.Context(), claim, claim); err == nil {
		t.Error("an update is allowed")
	}
	if _, err := v.ValidateDelete(t.Context(), claim); err == nil {
		t.Error("a deletion is allowed")
	}
}

func TestClaimsAreReadLiveUntilCacheSync(t *testing.T) {
	scheme := runtime.NewScheme()
	must(t, errors.Join(v1alpha1.AddToScheme(scheme), metav1.AddMetaToScheme(scheme)))
	cached, live := fake.NewClientBuilder().Build(), fake.NewClientBuilder().Build()
	alloc := replica.New(replica.Options{Ledger: ledger.New(ledger.Options{Clock: clock.RealClock{}})})
	m := &claimMutator{&services{Options: Options{Allocator: alloc.Allocator, Live: live}, cached: cached}}
	if m.claimReader() != client.Reader(cached) {
		t.Error("all claims are known, and they are not read from the cache")
	}
	must(t, alloc.Allocator.Feed(t.Context(), &informertest.FakeInformers{Scheme: scheme})) // and not FeedClaims
	if m.claimReader() != client.Reader(live) {
		t.Error("not all claims are known, and they are not read live")
	}
}

// TestRecordOfExistingClaimIsNotTakenOver makes the claim appear whose record is named,
// after its name was free a moment ago.
func TestRecordOfExistingClaimIsNotTakenOver(t *testing.T) {
	s := newStage(t)
	record := claimRecord("team", "c", "10.0.0.16/28")
	record.HolderUID = ""
	s.record(t, record)
	req := review("IPClaim", claimJSON(`{"cidr":"10.0.0.16/28","allocationName":"c-12345678"}`), "", 0)
	looks := 0
	s.fails.Store("get IPClaim", func() error {
		if looks++; looks != 2 {
			return nil
		}
		return s.store.Create(t.Context(), &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "c"}})
	})
	if answer := s.answer(t, req); !strings.HasPrefix(answer, "429") {
		t.Errorf("it is answered: %s", answer)
	}
	s.fails.Delete("get IPClaim")
	must(t, s.store.Delete(t.Context(), &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "c"}}))
	if answer := s.answer(t, req); !strings.HasPrefix(answer, "allowed") || strings.Contains(answer, "/spec/allocationName") {
		t.Errorf("when the claim is gone it is answered, with another record: %s", answer)
	}
}

// TestRestoreReadsClaimFromAPIServer hides from the cache a stored claim, whose record a create
// of its name states.
func TestRestoreReadsClaimFromAPIServer(t *testing.T) {
	s := newStage(t)
	record := claimRecord("team", "c", "10.0.0.16/28")
	record.HolderUID = ""
	s.record(t, record)
	must(t, s.store.Create(t.Context(), &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "c"}}))
	s.services.cached = fake.NewClientBuilder().WithScheme(s.store.Scheme()).Build()
	req := review("IPClaim", claimJSON(`{"cidr":"10.0.0.16/28","allocationName":"c-12345678"}`), "", 0)
	if answer := s.answer(t, req); !strings.HasPrefix(answer, "429") {
		t.Errorf("it is answered: %s", answer)
	}
	stored := &v1alpha1.IPAllocation{}
	must(t, s.store.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: "c-12345678"}, stored))
	if stored.Annotations[v1alpha1.AnnotationAdopted] != "" {
		t.Error("the record of a claim that is stored was taken over")
	}
}

func TestDryRunOfRestoredClaimShowsItsRecordAndTakesOverNone(t *testing.T) {
	s := newStage(t)
	record := claimRecord("team", "c", "10.0.0.16/28")
	record.HolderUID = ""
	s.record(t, record)
	req := review("IPClaim", claimJSON(`{"cidr":"10.0.0.16/28","allocationName":"c-12345678"}`), "", dry)
	if answer := s.answer(t, req); !strings.HasPrefix(answer, "allowed") || !strings.Contains(answer, "10.0.0.16/28") {
		t.Errorf("it is answered: %s", answer)
	}
	stored := &v1alpha1.IPAllocation{}
	must(t, s.store.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: "c-12345678"}, stored))
	if stored.Annotations[v1alpha1.AnnotationAdopted] != "" {
		t.Error("a dry run has taken over the record")
	}
}
