package explain

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// scene holds an address space in which claims of team-a wait; team-a is of project red.
type scene struct {
	objects register.Objects
	classes []v1alpha1.IPClass
}

// pools adds pools whose CIDRs are recorded.
func (s *scene) pools(pools ...*v1alpha1.IPPool) *scene {
	for _, pool := range pools {
		s.objects.Pools = append(s.objects.Pools, *pool)
		if read, errs := convert.Pool(pool); len(errs) == 0 && read.CIDR.IsValid() {
			s.records(ipam.Record{
				Name: convert.RecordOfPool("system", read.Key), Block: read.Blocks()[0], AdditionalBlocks: read.Blocks()[1:], Pool: read.Home, Holder: convert.HolderOfPool(read.Key),
				Purpose: ipam.PurposePool, Reclaim: ipam.ReclaimDelete, State: ipam.StateBound,
			})
		}
	}
	return s
}

// holds records blocks of a pool for claims of a namespace, named by their blocks.
func (s *scene) holds(pool, namespace string, blocks ...string) *scene {
	return s.keeps(ipam.StateBound, pool, namespace, blocks...)
}

// keeps records blocks in a state.
func (s *scene) keeps(state ipam.State, pool, namespace string, blocks ...string) *scene {
	for _, block := range blocks {
		name := ipam.Name{Namespace: namespace, Name: strings.NewReplacer("/", "-", ":", "-").Replace("of-" + block)}
		s.records(ipam.Record{
			Name: name, Block: netip.MustParsePrefix(block), Pool: ipam.PoolNamed(pool), Purpose: ipam.PurposeClaim, State: state, Project: namespace,
			Holder: convert.HolderOfClaim(ipam.Name{Namespace: namespace, Name: "has-" + name.Name}),
		})
	}
	return s
}

func (s *scene) records(record ipam.Record) {
	record.UID = record.Name.String()
	s.objects.Allocations = append(s.objects.Allocations, convert.Allocation(record))
}

func (s *scene) class(class *v1alpha1.IPClass) *scene {
	s.classes = append(s.classes, *class)
	return s
}

func (s *scene) waiting(claims ...*v1alpha1.IPClaim) *scene {
	for i, claim := range claims {
		claim.Status.Phase = v1alpha1.ClaimExhausted
		claim.CreationTimestamp = metav1.Time{Time: time.Unix(int64(100+i), 0)}
		s.objects.Waiting = append(s.objects.Waiting, *claim)
	}
	return s
}

// explains explains a claim to a user who can list everything.
func (s *scene) explains(t *testing.T, claim *v1alpha1.IPClaim) *Report {
	t.Helper()
	return s.explainsQuestion(t, aboutClaim(claim))
}

func (s *scene) explainsQuestion(t *testing.T, question *Question) *Report {
	t.Helper()
	question.report.Reason = v1alpha1.ReasonPoolExhausted
	return Explanation(t.Context(), question, s.knowledge(t))
}

// knowledge returns the knowledge of a user who can list everything.
func (s *scene) knowledge(t *testing.T) *Knowledge {
	t.Helper()
	knowledge := &Knowledge{Register: register.Build(&s.objects), Namespace: "team-a"}
	var namespaces []metav1.PartialObjectMetadata
	for name, project := range map[string]string{"team-a": "red", "team-b": "blue"} {
		namespaces = append(namespaces, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelProject: project}}})
	}
	if err := knowledge.load(s.classes, namespaces); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(knowledge.Close)
	return knowledge
}

func TestCandidateExplainsPoolRefusal(t *testing.T) {
	paused := build.Pool("p").CIDR("10.0.0.0/24").Obj()
	paused.Annotations = map[string]string{v1alpha1.AnnotationPaused: "false"}
	going := build.Pool("p").CIDR("10.0.0.0/24").Obj()
	going.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	claimOf := func(length int32) *v1alpha1.IPClaim { return build.Claim("team-a", "c").Pool("p").Length(length).Obj() }
	for name, c := range map[string]struct {
		scene  *scene
		claim  *v1alpha1.IPClaim
		reason v1alpha1.CandidateReason
		says   string
	}{
		"it is full":                       {new(scene).pools(build.Pool("p").CIDR("10.0.0.7/32").Obj()).holds("p", "team-b", "10.0.0.7/32"), claimOf(32), "NoFreeBlock", "no free /"},
		"the free blocks are too small":    {new(scene).pools(build.Pool("p").CIDR("10.0.0.0/24").Obj()).holds("p", "team-b", "10.0.0.0/32"), claimOf(24), "NoFreeBlock", "no free /24 in pool p"},
		"the whole of IPv6 has room":       {new(scene).pools(build.Pool("p").CIDR("::/0").Obj()), claimOf(128), "Fits", "has a free block"},
		"one address of IPv6":              {new(scene).pools(build.Pool("p").CIDR("2001:db8::1/128").Obj()).holds("p", "team-b", "2001:db8::1/128"), claimOf(128), "NoFreeBlock", "no free /"},
		"it is too small":                  {new(scene).pools(build.Pool("p").CIDR("10.0.0.0/24").Reserved("10.0.0.0/25", "10.0.0.192/26").Obj()), claimOf(25), "CannotFit", "leave a /26 at most"},
		"all of it is withheld":            {new(scene).pools(build.Pool("p").CIDR("10.0.0.0/24").Reserved("10.0.0.0/24").Obj()), claimOf(32), "CannotFit", "withholds all"},
		"its bounds exclude the length":    {new(scene).pools(build.Pool("p").CIDR("10.0.0.0/24").Lengths(26, 28).Obj()), claimOf(30), "LengthNotAllowed", "/26 to /28"},
		"it is paused":                     {new(scene).pools(paused), claimOf(28), "Paused", "is paused"},
		"it is being deleted":              {new(scene).pools(going), claimOf(28), "Terminating", "is being deleted"},
		"it has no CIDR":                   {new(scene).pools(build.Pool("p").Child("none", 24).Obj()), claimOf(28), "NotReady", "has no CIDR yet"},
		"it is for another project":        {new(scene).pools(build.Pool("p").CIDR("10.0.0.0/24").With(func(s *v1alpha1.IPPoolSpec) { s.Visibility, s.Project = "Consumer", "blue" }).Obj()), claimOf(28), "NotVisible", "is for project blue"},
		"it belongs to another project":    {new(scene).pools(build.Pool("p").CIDR("10.0.0.0/24").With(func(s *v1alpha1.IPPoolSpec) { s.Project = "blue" }).Obj()), claimOf(28), "NotVisible", "takes the right to use it"},
		"it is for the platform":           {new(scene).pools(build.Pool("p").CIDR("10.0.0.0/24").With(func(s *v1alpha1.IPPoolSpec) { s.Visibility = "Platform" }).Obj()), claimOf(28), "NotVisible", "only the operator knows"},
		"the project has reached a limit":  {new(scene).pools(build.Pool("p").CIDR("10.0.0.0/24").Limit(1).Obj()).holds("p", "red", "10.0.0.0/28"), claimOf(28), "LimitReached", "allows project red 1 block"},
		"others have reached theirs":       {new(scene).pools(build.Pool("p").CIDR("10.0.0.0/24").Limit(1).Obj()).holds("p", "blue", "10.0.0.0/28"), claimOf(28), "Fits", ""},
		"the very block is held":           {new(scene).pools(build.Pool("p").CIDR("10.0.0.0/24").Obj()).holds("p", "team-b", "10.0.0.0/28"), build.Claim("team-a", "c").Pool("p").CIDR("10.0.0.8/29").Obj(), "InUse", "10.0.0.0/28 is held by IPClaim team-b/has-of-10.0.0.0-28"},
		"the very block is reserved":       {new(scene).pools(build.Pool("p").CIDR("10.0.0.0/24").Reserved("10.0.0.0").Obj()), build.Claim("team-a", "c").Pool("p").CIDR("10.0.0.0/28").Obj(), "Withheld", "is not handed out"},
		"the very block lies elsewhere":    {new(scene).pools(build.Pool("p").CIDR("10.0.0.0/24").Obj()), build.Claim("team-a", "c").Pool("p").CIDR("10.0.1.0/28").Obj(), "OutsidePool", "10.0.1.0/28"},
		"records that overlap are counted": {new(scene).pools(build.Pool("p").CIDR("10.0.0.0/24").Obj()).holds("p", "team-b", "10.0.0.0/24", "10.0.0.0/25"), claimOf(28), "NoFreeBlock", "no free /"},
	} {
		report := c.scene.explains(t, c.claim)
		if len(report.Candidates) != 1 {
			t.Errorf("%s: got candidates %+v, want one", name, report.Candidates)
			continue
		}
		if got := report.Candidates[0]; got.Reason != c.reason || !strings.Contains(got.Message, c.says) {
			t.Errorf("%s: got %s: %s, want %s: %s", name, got.Reason, got.Message, c.reason, c.says)
		}
	}
}

func TestClassCandidatesAreItsPools(t *testing.T) {
	s := new(scene).pools(
		build.Pool("b").CIDR("10.0.0.0/28").Classes("gold").Obj(), build.Pool("a").CIDR("10.0.1.0/28").Classes("gold", "lead").Obj(),
		build.Pool("roomy").CIDR("10.0.2.0/24").Obj(), build.Pool("six").CIDR("2001:db8::/64").Obj(),
	).class(build.Class("gold").Length(28).Obj()).holds("a", "team-b", "10.0.1.0/28").holds("b", "team-b", "10.0.0.0/28")
	report := s.explains(t, build.Claim("team-a", "c").Class("gold").Obj())
	var names []string
	for _, c := range report.Candidates {
		names = append(names, c.Name+" "+string(c.Reason))
	}
	if want := []string{"a NoFreeBlock", "b NoFreeBlock"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
	helps(t, report, "add the class to spec.classNames of pool roomy, which has a free /28")
	if text := strings.Join(report.Remedies, "\n"); strings.Contains(text, "six") {
		t.Errorf("a pool of another family is named:\n%s", text)
	}
	if report.Asks != "a /28 of class gold" {
		t.Errorf("asks for %s", report.Asks)
	}
}

// TestMissingClassHasNoCandidates expects the condition that the class is missing.
func TestMissingClassHasNoCandidates(t *testing.T) {
	report := new(scene).pools(build.Pool("p").CIDR("10.0.0.0/28").Obj()).explains(t, build.Claim("team-a", "c").Class("none").Obj())
	if len(report.Candidates)+len(report.Remedies) > 0 || report.PoolsUnread {
		t.Errorf("got %+v", report)
	}
}

// occupying returns a child pool of p that occupies ranges of 10.0.0.0/28.
func occupying(ranges ...string) *v1alpha1.IPPool {
	return build.Pool("o").CIDR("10.0.0.0/28").Occupies(ranges...).With(func(s *v1alpha1.IPPoolSpec) {
		s.ParentRef = &v1alpha1.PoolReference{Kind: v1alpha1.PoolKindIPPool, Name: "p"}
	}).Obj()
}

// TestPoolThatOccupiesRangesHoldsThemOfItsParent asks the parent and the pool itself for addresses.
func TestPoolThatOccupiesRangesHoldsThemOfItsParent(t *testing.T) {
	p := build.Pool("p").CIDR("10.0.0.0/28").Obj()
	for name, c := range map[string]struct {
		claim *v1alpha1.IPClaim
		want  string
	}{
		"in an additional block":      {build.Claim("team-a", "c").Pool("p").CIDR("10.0.0.9/32").Obj(), "InUse: 10.0.0.8/30 is held by IPPool o"},
		"beside the ranges":           {build.Claim("team-a", "c").Pool("p").CIDR("10.0.0.15/32").Obj(), "Fits"},
		"of the pool":                 {build.Claim("team-a", "c").Pool("o").CIDR("10.0.0.9/32").Obj(), "Fits"},
		"of the pool, and not in it":  {build.Claim("team-a", "c").Pool("o").CIDR("10.0.0.15/32").Obj(), "OutsidePool"},
		"a block that the parent has": {build.Claim("team-a", "c").Pool("p").Length(28).Obj(), "NoFreeBlock"},
	} {
		report := new(scene).pools(p, occupying("10.0.0.1-10.0.0.11")).explains(t, c.claim)
		if len(report.Candidates) != 1 || !strings.HasPrefix(string(report.Candidates[0].Reason)+": "+report.Candidates[0].Message, c.want) {
			t.Errorf("%s: got %+v, want %s", name, report.Candidates, c.want)
		}
	}
	report := new(scene).pools(p, occupying("10.0.0.1-10.0.0.14")).explains(t, build.Claim("team-a", "c").Pool("p").Length(28).Obj())
	helps(t, report, "delete the child pool o, which has 10.0.0.1/32 and 5 more blocks of pool p")
	if text := strings.Join(report.Remedies, "\n"); strings.Count(text, "the child pool o") != 1 {
		t.Errorf("the pool is named more than once:\n%s", text)
	}
	edited := new(scene).pools(p, occupying("10.0.0.1-10.0.0.14"))
	edited.records(ipam.Record{
		Name: ipam.Name{Namespace: "system", Name: "before-the-edit"}, Block: netip.MustParsePrefix("10.0.0.0/32"), AdditionalBlocks: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/31")},
		Pool: ipam.PoolNamed("p"), Holder: convert.HolderOfPool(ipam.PoolNamed("o")), Purpose: ipam.PurposePool, State: ipam.StateBound,
	})
	if text := strings.Join(edited.explains(t, build.Claim("team-a", "c").Pool("p").Length(31).Obj()).Remedies, "\n"); strings.Count(text, "the child pool o") != 1 {
		t.Errorf("a record is named that makes no room, because another one has its second block:\n%s", text)
	}
	r := register.Build(&register.Objects{Pools: []v1alpha1.IPPool{*p, *occupying("10.0.0.4")}})
	if got := fmt.Sprint(lineage(r, ipam.PoolNamed("o"))); !strings.HasPrefix(got, "[pool o (ranges of 10.0.0.0/28) pool p (10.0.0.0/28)") {
		t.Errorf("the pools above it are %s", got)
	}
}

func helps(t *testing.T, report *Report, remedy string) {
	t.Helper()
	if !slices.ContainsFunc(report.Remedies, func(r string) bool { return strings.Contains(r, remedy) }) {
		t.Errorf("none of the remedies is %q:\n%s", remedy, strings.Join(report.Remedies, "\n"))
	}
}

// TestRemediesNameSufficientReleases names a block only if it is large enough when it is free, together
// with the free space beside it; retained blocks come first.
func TestRemediesNameSufficientReleases(t *testing.T) {
	drained := build.Pool("p").CIDR("10.0.0.0/28").Reserved("10.0.0.0/29").Obj()
	for name, c := range map[string]struct {
		scene  *scene
		length int32
		want   []string
	}{
		"a buddy is free": {
			new(scene).pools(build.Pool("p").CIDR("10.0.0.0/28").Obj()).holds("p", "team-b", "10.0.0.0/30", "10.0.0.8/30", "10.0.0.12/30"), 28,
			[]string{"release several blocks"},
		},
		"one of them is enough": {
			new(scene).pools(build.Pool("p").CIDR("10.0.0.0/28").Obj()).holds("p", "team-b", "10.0.0.0/30", "10.0.0.8/30", "10.0.0.12/30"), 29,
			[]string{"release 10.0.0.0/30 of pool p, held by IPClaim team-b/has-of-10.0.0.0-30"},
		},
		"retained blocks come first": {
			new(scene).pools(build.Pool("p").CIDR("10.0.0.0/31").Obj()).holds("p", "team-b", "10.0.0.0/32").keeps(ipam.StateRetained, "p", "team-b", "10.0.0.1/32"), 32,
			[]string{"release 10.0.0.1/32 of pool p, which is retained: kubectl ipam release ipallocation/of-10.0.0.1-32 -n team-b", "release 10.0.0.0/32"},
		},
		"a drained block is withheld afterwards": {
			new(scene).pools(drained).holds("p", "team-b", "10.0.0.0/29", "10.0.0.8/29"), 29,
			[]string{"release 10.0.0.8/29"},
		},
	} {
		report := c.scene.explains(t, build.Claim("team-a", "c").Pool("p").Length(c.length).Obj())
		var releases []string
		for _, remedy := range report.Remedies {
			if strings.HasPrefix(remedy, "release") {
				releases = append(releases, remedy)
			}
		}
		if len(releases) != len(c.want) {
			t.Errorf("%s: got %q, want %q", name, releases, c.want)
			continue
		}
		for i, want := range c.want {
			if !strings.HasPrefix(releases[i], want) {
				t.Errorf("%s: got %q, want %q", name, releases, c.want)
			}
		}
	}
}

func TestOrderListsEarlierClaims(t *testing.T) {
	claims := []*v1alpha1.IPClaim{
		build.Claim("team-b", "first").Pool("p").Length(28).Obj(),
		build.Claim("team-b", "by-class").Class("gold").Length(28).Obj(),
		build.Claim("team-b", "elsewhere").Pool("q").Length(28).Obj(),
		build.Claim("team-a", "c").Pool("p").Length(28).Obj(),
		build.Claim("team-b", "later").Pool("p").Length(28).Obj(),
	}
	s := new(scene).pools(build.Pool("p").CIDR("10.0.0.0/28").Classes("gold").Obj(), build.Pool("q").CIDR("10.0.1.0/28").Obj()).
		class(build.Class("gold").Obj()).holds("p", "team-b", "10.0.0.0/28").waiting(claims...)
	lost := build.Claim("team-b", "lost").Pool("p").Obj()
	lost.Status.Phase = v1alpha1.ClaimPending
	s.objects.Waiting = append(s.objects.Waiting, *lost)
	report := s.explains(t, claims[3])
	var names []string
	for _, w := range ahead(report.Order) {
		names = append(names, w.Name)
	}
	if want := []string{"first", "by-class"}; !slices.Equal(names, want) || len(report.Order) != 4 {
		t.Errorf("before it come %q of %d, want %q of 4", names, len(report.Order), want)
	}
}

// TestTenantSeesCandidatesOfStatus covers a tenant who cannot read the pools.
func TestTenantSeesCandidatesOfStatus(t *testing.T) {
	claim := build.Claim("team-a", "c").Pool("p").Length(28).Obj()
	s := new(scene).waiting(claim)
	s.objects.Unread = []register.Unread{{Resource: "ippools", Err: errors.New("forbidden")}, {Resource: "ipclaims", Namespace: "team-a", Err: errors.New("forbidden")}}
	knowledge := &Knowledge{Register: register.Build(&s.objects), Namespace: "team-a"}
	report := Explanation(t.Context(), aboutClaim(claim), knowledge)
	if len(report.Candidates)+len(report.Remedies) > 0 || !report.PoolsUnread {
		t.Errorf("the status names no pool: got %+v", report)
	}
	claim.Status.Candidates = []v1alpha1.CandidatePool{{PoolRef: v1alpha1.PoolReference{Kind: v1alpha1.PoolKindIPPool, Name: "p"}, Reason: v1alpha1.CandidateNoFreeBlock, Message: "none is free"}}
	question := aboutClaim(claim)
	question.report.Reason = v1alpha1.ReasonPoolExhausted
	report = Explanation(t.Context(), question, knowledge)
	if want := []Candidate{{Kind: "IPPool", Name: "p", Reason: v1alpha1.CandidateNoFreeBlock, Message: "none is free"}}; !slices.Equal(report.Candidates, want) || report.PoolsUnread || len(report.Remedies) > 0 {
		t.Errorf("got %+v, want %+v", report, want)
	}
	if !report.OrderIsPartial || len(report.Order) != 1 {
		t.Errorf("got the order %+v, partial %t", report.Order, report.OrderIsPartial)
	}
	if want := "a /28 of pool p"; report.Asks != want {
		t.Errorf("asks for %s, want %s", report.Asks, want)
	}
}

// TestStatusOverridesPlatformVerdict expects the operator's verdict on a pool, from the
// status of the claim, if it differs.
func TestStatusOverridesPlatformVerdict(t *testing.T) {
	s := new(scene).pools(build.Pool("p").CIDR("10.0.0.0/28").With(func(s *v1alpha1.IPPoolSpec) { s.Visibility = "Platform" }).Obj()).holds("p", "team-b", "10.0.0.0/28")
	claim := build.Claim("team-a", "c").Pool("p").Length(28).Obj()
	claim.Status.Candidates = []v1alpha1.CandidatePool{{PoolRef: v1alpha1.PoolReference{Kind: v1alpha1.PoolKindIPPool, Name: "p"}, Reason: v1alpha1.CandidateNoFreeBlock, Message: "none is free"}}
	report := s.explains(t, claim)
	if len(report.Candidates) != 1 || report.Candidates[0].Reason != v1alpha1.CandidateNoFreeBlock || report.Candidates[0].Message != "none is free" || report.Candidates[0].Available != "0" {
		t.Errorf("got %+v", report.Candidates)
	}
	helps(t, report, "release 10.0.0.0/28 of pool p")
}

// TestAddressClaimWaitsBehindOlderClaim covers a claim whose status has no candidates: a
// block that is free is not for it while an older claim waits.
func TestAddressClaimWaitsBehindOlderClaim(t *testing.T) {
	s := new(scene).pools(build.Pool("p").CIDR("10.0.0.0/31").Obj()).holds("p", "team-b", "10.0.0.0/32").
		waiting(build.Claim("team-b", "older").Pool("p").Length(32).Obj())
	claim := build.AddressClaim("team-a", "machine").Pool("p").Obj()
	claim.CreationTimestamp = metav1.Time{Time: time.Unix(200, 0)}
	report := s.explainsQuestion(t, aboutAddressClaim(t.Context(), nil, claim))
	if len(report.Candidates) != 1 || report.Candidates[0].Reason != v1alpha1.CandidateNoFreeBlock || report.Candidates[0].LargestFreePrefix != "/32" {
		t.Errorf("got %+v, want NoFreeBlock although a /32 is free", report.Candidates)
	}
	if before := ahead(report.Order); len(before) != 1 || before[0].Name != "older" {
		t.Errorf("got the order %+v", report.Order)
	}
}

// TestWaitingChildPoolPrecedesYoungerClaims covers claims of its parent.
func TestWaitingChildPoolPrecedesYoungerClaims(t *testing.T) {
	child := build.Pool("child").Child("p", 25).Obj()
	child.CreationTimestamp = metav1.Time{Time: time.Unix(50, 0)}
	claim := build.Claim("team-a", "c").Pool("p").Length(25).Obj()
	s := new(scene).pools(build.Pool("p").CIDR("10.0.0.0/24").Obj(), child).holds("p", "team-b", "10.0.0.0/24").waiting(claim)
	report := s.explains(t, claim)
	if before := ahead(report.Order); len(before) != 1 || before[0] != (Waiter{Kind: "IPPool", Name: "child", Since: child.CreationTimestamp.Time}) {
		t.Errorf("got the order %+v", report.Order)
	}
}

func TestLineageListsPoolsAndDomain(t *testing.T) {
	child := build.Pool("child").Child("root", 24).Obj()
	child.Spec.CIDR = "10.0.1.0/24"
	r := register.Build(&register.Objects{Pools: []v1alpha1.IPPool{*build.Pool("root").CIDR("10.0.0.0/16").Domain("lab").Obj(), *child}})
	got := lineage(r, ipam.PoolNamed("child"))
	if want := []string{"pool child (10.0.1.0/24)", "pool root (10.0.0.0/16)", "routing domain lab"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := fmt.Sprint(lineage(r, ipam.PoolNamed("none"))); got != "[pool none]" {
		t.Errorf("got %s", got)
	}
}
