package webhooks

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

func TestPoolOfNamespaceAtWaiterLimitIsRefused(t *testing.T) {
	s := newStage(t)
	limited := queue.New(queue.Options{Ledger: s.Ledger, Catalog: s.Catalog, Limit: 1})
	s.services.Queue = limited
	req := review("LocalIPPool", poolJSON("own", `{"parentRef":{"kind":"IPPool","name":"missing"},"prefixLength":26}`), "", 0)
	if answer := s.answer(t, req); !strings.Contains(answer, "the pool waits") {
		t.Errorf("without a waiter it is answered: %s", answer)
	}
	claim := ipam.Name{Namespace: "team", Name: "waits"}
	limited.Wait(queue.Waiter{Holder: convert.HolderOfClaim(claim), Request: ipam.Request{Claim: claim, Class: "gold"}})
	if answer := s.answer(t, req); !strings.Contains(answer, "has reached its limit") {
		t.Errorf("it is answered: %s", answer)
	}
	root := review("LocalIPPool", poolJSON("root", `{"cidr":"10.7.0.0/24"}`), "", 0)
	if answer := s.answer(t, root); strings.Contains(answer, "limit") {
		t.Errorf("one that need not wait is answered: %s", answer)
	}
}

// TestChildOfPoolReadLiveIsCarved uses a parent that no cache has shown yet.
func TestChildOfPoolReadLiveIsCarved(t *testing.T) {
	s := newStage(t)
	parent := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "late"}}
	parent.Spec.CIDR, parent.Spec.IPFamily, parent.Spec.RoutingDomain = "10.8.0.0/24", v1alpha1.IPv4, "default"
	must(t, s.store.Create(t.Context(), parent))
	pool, errs := convert.Pool(parent)
	must(t, errs.ToAggregate())
	s.record(t, poolRecord(pool))
	req := review("IPPool", poolJSON("q", `{"parentRef":{"kind":"IPPool","name":"late"},"prefixLength":26}`), "", 0)
	if answer := s.answer(t, req); !strings.Contains(answer, "10.8.0.0/26") {
		t.Errorf("it is answered: %s", answer)
	}
}

func TestUnreadableObjectAllowedBySchemaIsBadRequest(t *testing.T) {
	s := newStage(t)
	d, err := newDraft([]byte(poolJSON("q", `{"cidr":"10.9.0.0/16"}`)))
	must(t, err)
	response := s.services.unreadable("IPPool", d, errors.New("labels are no map"))
	if response.Allowed || response.Result.Code != http.StatusBadRequest || response.Result.Message != "labels are no map" {
		t.Errorf("it is answered: %+v", response.Result)
	}
}

func TestRecordOfPoolStatesRequester(t *testing.T) {
	s := newStage(t)
	req := review("LocalIPPool", poolJSON("own", `{"parentRef":{"kind":"IPPool","name":"p"},"prefixLength":26}`), "", 0)
	if answer := s.answer(t, req); !strings.HasPrefix(answer, "allowed") {
		t.Fatalf("it is answered: %s", answer)
	}
	stored := &v1alpha1.IPAllocation{}
	must(t, s.store.Get(t.Context(), client.ObjectKey(convert.RecordOfPool("system", ipam.PoolKey{Kind: ipam.PoolKindLocalIPPool, Namespace: "team", Name: "own"})), stored))
	if got := stored.Spec.RequestedBy; got == "" || got != req.UserInfo.Username {
		t.Errorf("the requester is %q, want %q", got, req.UserInfo.Username)
	}
}

// TestEditOfRangesIsRefusedForBlocksOfOthersThatItAdds edits the pool q beside the pool r.
func TestEditOfRangesIsRefusedForBlocksOfOthersThatItAdds(t *testing.T) {
	s := newStage(t)
	own := func(pool, name, block string) {
		r := poolRecord(ipam.Pool{Key: ipam.PoolNamed(pool), CIDR: netip.MustParsePrefix(block), Home: ipam.DomainNamed("default", ipam.IPv4)})
		r.Name.Name, r.UID, r.HolderUID = name, "uid-of-"+name, pool
		s.record(t, r)
	}
	own("q", "q", "10.9.0.0/30")
	own("r", "r", "10.9.0.8/30")
	pool := func(occupies, ranges, class string) string {
		return `{"metadata":{"name":"q","uid":"q"},"spec":{"cidr":"10.9.0.0/16","occupies":"` + occupies + `","classNames":["` + class + `"],"ranges":["` + ranges + `"]}}`
	}
	check := func(what, before, after string, want bool) {
		t.Helper()
		response := s.validate["IPPool"].Handle(t.Context(), review("IPPool", after, before, updating|validating))
		if response.Allowed != want {
			t.Errorf("%s: allowed: %t, %+v", what, response.Allowed, response.Result)
		}
	}
	check("more", pool("Ranges", "10.9.0.0/30", "a"), pool("Ranges", "10.9.0.0/29", "a"), true)
	check("more, of another pool too", pool("Ranges", "10.9.0.0/30", "a"), pool("Ranges", "10.9.0.0/28", "a"), false)
	check("another class, beside a conflict", pool("Ranges", "10.9.0.0/28", "a"), pool("Ranges", "10.9.0.0/28", "b"), true)
	check("other ranges of the whole CIDR, beside a conflict", pool("CIDR", "10.9.0.0/30", "a"), pool("CIDR", "10.9.0.0/29", "a"), true)
	for n := range 9 {
		own("q", fmt.Sprintf("q-%d", n), fmt.Sprintf("10.9.1.%d/32", n))
	}
	check("more, after many edits", pool("Ranges", "10.9.0.0/30", "a"), pool("Ranges", "10.9.0.0/29", "a"), false)
}
