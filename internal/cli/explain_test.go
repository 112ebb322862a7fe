package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/adapt"
	"github.com/cadastre-dev/cadastre/internal/cli/register"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/test/framework/build"
)

// scene is an address space in which claims of team-a wait; team-a is of project red.
type scene struct{ objects register.Objects }

func (s *scene) pools(pools ...*v1alpha1.IPPool) *scene {
	for _, pool := range pools {
		s.objects.Pools = append(s.objects.Pools, *pool)
	}
	return s
}

// holds records blocks of a pool for claims of a namespace, named by their blocks.
func (s *scene) holds(pool, namespace string, edit func(*v1alpha1.IPAllocationSpec), blocks ...string) *scene {
	for _, block := range blocks {
		record := v1alpha1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: strings.NewReplacer("/", "-", ":", "-").Replace("of-" + block)}}
		family := v1alpha1.IPv4
		if strings.Contains(block, ":") {
			family = v1alpha1.IPv6
		}
		record.Spec = v1alpha1.IPAllocationSpec{
			CIDR: block, IPFamily: family, PoolRef: &v1alpha1.PoolReference{Kind: v1alpha1.PoolKindIPPool, Name: pool},
			ClaimRef: v1alpha1.ClaimReference{APIGroup: v1alpha1.GroupVersion.Group, Kind: "IPClaim", Name: "has-" + record.Name},
			Purpose:  v1alpha1.PurposeClaim, State: v1alpha1.AllocationBound, Project: namespace,
		}
		if edit != nil {
			edit(&record.Spec)
		}
		s.objects.Allocations = append(s.objects.Allocations, &record)
	}
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

func (s *scene) explains(claim *v1alpha1.IPClaim, class *v1alpha1.IPClass) *ExplainReport {
	known := &knowledge{register: register.Build(&s.objects), namespace: "team-a", tenant: &ipam.Tenant{Project: "red"}}
	if class != nil {
		read, _ := adapt.Class(class)
		known.class = &read
	}
	asked := aboutClaim(claim)
	asked.reason = v1alpha1.ReasonPoolExhausted
	return explanation(asked, known)
}

func limited(blocks int64) func(*v1alpha1.IPPoolSpec) {
	return func(s *v1alpha1.IPPoolSpec) {
		s.Limits = &v1alpha1.Limits{PerProject: &v1alpha1.ProjectLimits{Blocks: &blocks}}
	}
}

func TestWhyAPoolDoesNotServeAClaim(t *testing.T) {
	paused := build.Pool("p").CIDR("10.0.0.0/24").Obj()
	paused.Annotations = map[string]string{v1alpha1.AnnotationPaused: "false"}
	going := build.Pool("p").CIDR("10.0.0.0/24").Obj()
	going.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	of := func(length int32) *v1alpha1.IPClaim { return build.Claim("team-a", "c").Pool("p").Length(length).Obj() }
	for name, c := range map[string]struct {
		scene  *scene
		claim  *v1alpha1.IPClaim
		reason string
		says   string
	}{
		"it is full":                       {new(scene).pools(build.Pool("p").CIDR("10.0.0.7/32").Obj()).holds("p", "team-b", nil, "10.0.0.7/32"), of(32), "PoolExhausted", "is full"},
		"what is free is too small":        {new(scene).pools(build.Pool("p").CIDR("10.0.0.0/24").Obj()).holds("p", "team-b", nil, "10.0.0.0/32"), of(24), "PoolExhausted", "the largest free block is a /25"},
		"the whole of IPv6 has room":       {new(scene).pools(build.Pool("p").CIDR("::/0").Obj()), of(128), "HasRoom", "has room"},
		"one address of IPv6":              {new(scene).pools(build.Pool("p").CIDR("2001:db8::1/128").Obj()).holds("p", "team-b", nil, "2001:db8::1/128"), of(128), "PoolExhausted", "is full"},
		"it is too small":                  {new(scene).pools(build.Pool("p").CIDR("10.0.0.0/24").Reserved("10.0.0.0/25", "10.0.0.192/26").Obj()), of(25), "CannotFit", "its largest block is a /26"},
		"all of it is withheld":            {new(scene).pools(build.Pool("p").CIDR("10.0.0.0/24").Reserved("10.0.0.0/24").Obj()), of(32), "CannotFit", "withholds all"},
		"its bounds exclude the length":    {new(scene).pools(build.Pool("p").CIDR("10.0.0.0/24").Lengths(26, 28).Obj()), of(30), "PolicyViolation", "hands out /26 to /28"},
		"it is paused":                     {new(scene).pools(paused), of(28), "PoolNotReady", "is paused"},
		"it is being deleted":              {new(scene).pools(going), of(28), "PoolNotReady", "is being deleted"},
		"it has no CIDR":                   {new(scene).pools(build.Pool("p").Child("none", 24).Obj()), of(28), "PoolNotReady", "has no CIDR yet"},
		"it is for another project":        {new(scene).pools(build.Pool("p").CIDR("10.0.0.0/24").With(func(s *v1alpha1.IPPoolSpec) { s.Visibility, s.Project = "Consumer", "blue" }).Obj()), of(28), "NotVisible", "is for project blue"},
		"it belongs to another project":    {new(scene).pools(build.Pool("p").CIDR("10.0.0.0/24").With(func(s *v1alpha1.IPPoolSpec) { s.Project = "blue" }).Obj()), of(28), "NotVisible", "takes the right to use it"},
		"it is for the platform":           {new(scene).pools(build.Pool("p").CIDR("10.0.0.0/24").With(func(s *v1alpha1.IPPoolSpec) { s.Visibility = "Platform" }).Obj()), of(28), "NotVisible", "platform"},
		"the project has reached a limit":  {new(scene).pools(build.Pool("p").CIDR("10.0.0.0/24").With(limited(1)).Obj()).holds("p", "red", nil, "10.0.0.0/28"), of(28), "LimitReached", "allows project red 1 block"},
		"others have reached theirs":       {new(scene).pools(build.Pool("p").CIDR("10.0.0.0/24").With(limited(1)).Obj()).holds("p", "blue", nil, "10.0.0.0/28"), of(28), "HasRoom", ""},
		"the very block is held":           {new(scene).pools(build.Pool("p").CIDR("10.0.0.0/24").Obj()).holds("p", "team-b", nil, "10.0.0.0/28"), build.Claim("team-a", "c").Pool("p").CIDR("10.0.0.8/29").Obj(), "Conflict", "10.0.0.0/28 is held by IPClaim team-b/has-of-10.0.0.0-28"},
		"the very block is reserved":       {new(scene).pools(build.Pool("p").CIDR("10.0.0.0/24").Reserved("10.0.0.0").Obj()), build.Claim("team-a", "c").Pool("p").CIDR("10.0.0.0/28").Obj(), "Conflict", "is not handed out"},
		"the very block lies elsewhere":    {new(scene).pools(build.Pool("p").CIDR("10.0.0.0/24").Obj()), build.Claim("team-a", "c").Pool("p").CIDR("10.0.1.0/28").Obj(), "PolicyViolation", "lies outside"},
		"records that overlap are counted": {new(scene).pools(build.Pool("p").CIDR("10.0.0.0/24").Obj()).holds("p", "team-b", nil, "10.0.0.0/24", "10.0.0.0/25"), of(28), "PoolExhausted", "is full"},
	} {
		report := c.scene.explains(c.claim, nil)
		if len(report.Candidates) != 1 {
			t.Errorf("%s: got candidates %+v, want one", name, report.Candidates)
			continue
		}
		if got := report.Candidates[0]; got.Reason != c.reason || !strings.Contains(got.Message, c.says) {
			t.Errorf("%s: got %s: %s, want %s: %s", name, got.Reason, got.Message, c.reason, c.says)
		}
	}
}

func TestTheCandidatesOfAClass(t *testing.T) {
	s := new(scene).pools(
		build.Pool("b").CIDR("10.0.0.0/28").Classes("gold").Obj(), build.Pool("a").CIDR("10.0.1.0/28").Classes("gold", "lead").Obj(),
		build.Pool("roomy").CIDR("10.0.2.0/24").Obj(), build.Pool("six").CIDR("2001:db8::/64").Obj(),
	).holds("a", "team-b", nil, "10.0.1.0/28").holds("b", "team-b", nil, "10.0.0.0/28")
	report := s.explains(build.Claim("team-a", "c").Class("gold").Obj(), build.Class("gold").Length(28).Obj())
	var names []string
	for _, c := range report.Candidates {
		names = append(names, c.Name+" "+c.Reason)
	}
	if want := []string{"a PoolExhausted", "b PoolExhausted"}; !slices.Equal(names, want) {
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

func helps(t *testing.T, report *ExplainReport, remedy string) {
	t.Helper()
	if !slices.ContainsFunc(report.Remedies, func(r string) bool { return strings.Contains(r, remedy) }) {
		t.Errorf("none of the remedies says %q:\n%s", remedy, strings.Join(report.Remedies, "\n"))
	}
}

// TestWhatToReleaseMakesRoom names a block only where it is large enough when it is free, with
// what is free beside it; what is retained comes first.
func TestWhatToReleaseMakesRoom(t *testing.T) {
	retained := func(s *v1alpha1.IPAllocationSpec) { s.State = v1alpha1.AllocationRetained }
	drained := build.Pool("p").CIDR("10.0.0.0/28").Reserved("10.0.0.0/29").Obj()
	for name, c := range map[string]struct {
		scene  *scene
		length int32
		want   []string
	}{
		"a buddy is free": {
			new(scene).pools(build.Pool("p").CIDR("10.0.0.0/28").Obj()).holds("p", "team-b", nil, "10.0.0.0/30", "10.0.0.8/30", "10.0.0.12/30"), 28,
			[]string{"release several blocks"},
		},
		"one of them is enough": {
			new(scene).pools(build.Pool("p").CIDR("10.0.0.0/28").Obj()).holds("p", "team-b", nil, "10.0.0.0/30", "10.0.0.8/30", "10.0.0.12/30"), 29,
			[]string{"release 10.0.0.0/30 of pool p, held by IPClaim team-b/has-of-10.0.0.0-30"},
		},
		"what is retained comes first": {
			new(scene).pools(build.Pool("p").CIDR("10.0.0.0/31").Obj()).holds("p", "team-b", nil, "10.0.0.0/32").holds("p", "team-b", retained, "10.0.0.1/32"), 32,
			[]string{"release 10.0.0.1/32 of pool p, which is retained: kubectl ipam release ipallocation/of-10.0.0.1-32 -n team-b", "release 10.0.0.0/32"},
		},
		"what is drained is withheld afterwards": {
			new(scene).pools(drained).holds("p", "team-b", nil, "10.0.0.0/29", "10.0.0.8/29"), 29,
			[]string{"release 10.0.0.8/29"},
		},
	} {
		report := c.scene.explains(build.Claim("team-a", "c").Pool("p").Length(c.length).Obj(), nil)
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

func TestWhichClaimsComeFirst(t *testing.T) {
	claims := []*v1alpha1.IPClaim{
		build.Claim("team-b", "first").Pool("p").Length(28).Obj(),
		build.Claim("team-b", "by-class").Class("gold").Length(28).Obj(),
		build.Claim("team-b", "elsewhere").Pool("q").Length(28).Obj(),
		build.Claim("team-a", "c").Pool("p").Length(28).Obj(),
		build.Claim("team-b", "later").Pool("p").Length(28).Obj(),
	}
	s := new(scene).pools(build.Pool("p").CIDR("10.0.0.0/28").Classes("gold").Obj(), build.Pool("q").CIDR("10.0.1.0/28").Obj()).
		holds("p", "team-b", nil, "10.0.0.0/28").waiting(claims...)
	lost := build.Claim("team-b", "lost").Pool("p").Obj()
	lost.Status.Phase = v1alpha1.ClaimPending
	s.objects.Waiting = append(s.objects.Waiting, *lost)
	report := s.explains(claims[3], nil)
	var names []string
	for _, w := range ahead(report.Order) {
		names = append(names, w.Name)
	}
	if want := []string{"first", "by-class"}; !slices.Equal(names, want) || len(report.Order) != 4 {
		t.Errorf("before it come %q of %d, want %q of 4", names, len(report.Order), want)
	}
}

// TestATenantIsToldWhatTheStatusSays where the pools may not be read.
func TestATenantIsToldWhatTheStatusSays(t *testing.T) {
	s := new(scene)
	s.objects.Unread = []register.Unread{{Resource: "ippools", Err: errors.New("forbidden")}, {Resource: "ipclaims", Namespace: "team-a", Err: errors.New("forbidden")}}
	claim := build.Claim("team-a", "c").Pool("p").Length(28).Obj()
	s.waiting(claim)
	report := s.explains(claim, nil)
	if len(report.Candidates)+len(report.Remedies) > 0 || !report.OrderIsPartial || len(report.Order) != 1 {
		t.Errorf("got %+v", report)
	}
	if want := "a /28 of pool p"; report.Asks != want {
		t.Errorf("asks for %s, want %s", report.Asks, want)
	}
}

func TestWhereABlockCameFrom(t *testing.T) {
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
