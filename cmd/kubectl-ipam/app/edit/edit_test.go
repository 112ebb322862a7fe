package edit

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

func TestTheSameRequestIsToldFromAnother(t *testing.T) {
	stored := build.Claim("team", "web").Class("gold").Length(24).CIDR("10.0.0.0/24").With(func(s *v1alpha1.IPClaimSpec) {
		s.IPFamily, s.ReclaimPolicy, s.AllocationName = v1alpha1.IPv4, v1alpha1.ReclaimDelete, "web-x"
	}).Obj()
	ofPool := build.Claim("team", "web").Pool("p").Obj()
	going := stored.DeepCopy()
	going.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	for name, c := range map[string]struct {
		asked, stored *v1alpha1.IPClaim
		field         string
	}{
		"no field is stated":             {build.Claim("team", "web").Obj(), stored, ""},
		"every field is stated":          {stored, stored, ""},
		"another class":                  {build.Claim("team", "web").Class("lead").Obj(), stored, "spec.className is gold, and not lead"},
		"another length":                 {build.Claim("team", "web").Length(25).Obj(), stored, "spec.prefixLength is /24, and not /25"},
		"another block":                  {build.Claim("team", "web").CIDR("10.0.1.0/24").Obj(), stored, "spec.cidr is 10.0.0.0/24, and not 10.0.1.0/24"},
		"a pool in place of the class":   {build.Claim("team", "web").Pool("p").Obj(), stored, "spec.poolRef is not set, and not ippool/p"},
		"no pool, and one is stored":     {build.Claim("team", "web").Obj(), ofPool, "spec.poolRef is ippool/p, and not left out"},
		"a local pool of the same name":  {build.Claim("team", "web").LocalPool("p").Obj(), ofPool, "spec.poolRef is ippool/p, and not localippool/p"},
		"labels of pools":                {build.Claim("team", "web").Selecting("site", "a").Obj(), stored, "spec.poolSelector is not set, and not site=a"},
		"the stored claim is on its way": {stored, going, "is being deleted"},
	} {
		err := sameRequest(c.asked, c.stored)
		switch {
		case c.field == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.field != "" && (command.CodeOf(err) != command.ExitConflict || !strings.Contains(err.Error(), c.field)):
			t.Errorf("%s: got %v, want a conflict that names %q", name, err, c.field)
		}
	}
}

func TestWithWhichCodeAClaimThatWaitsEnds(t *testing.T) {
	for reason, want := range map[string]command.ExitCode{
		v1alpha1.ReasonPoolExhausted: command.ExitExhausted, v1alpha1.ReasonCannotFit: command.ExitExhausted, v1alpha1.ReasonPoolNotReady: command.ExitExhausted,
		v1alpha1.ReasonClassNotFound: command.ExitNotFound, v1alpha1.ReasonNoDefaultClass: command.ExitNotFound, v1alpha1.ReasonNoPoolForClass: command.ExitNotFound,
		v1alpha1.ReasonLimitReached: command.ExitLimit, v1alpha1.ReasonTooManyWaiting: command.ExitLimit,
		v1alpha1.ReasonConflict: command.ExitConflict, v1alpha1.ReasonPolicyViolation: command.ExitUsage, v1alpha1.ReasonRecordRefused: command.ExitForbidden,
		v1alpha1.ReasonNotServed: command.ExitError, "NoAnswer": command.ExitError,
	} {
		if got := codeOfReason(reason); got != want {
			t.Errorf("%s: code %d, want %d", reason, got, want)
		}
	}
}

func TestWhatBecomesOfABlock(t *testing.T) {
	for name, c := range map[string]struct {
		policy  v1alpha1.ReclaimPolicy
		keeping ipam.Keeping
		want    string
	}{
		"it is free":            {v1alpha1.ReclaimDelete, ipam.Keeping{}, "free again as soon as"},
		"it cools down":         {v1alpha1.ReclaimDelete, ipam.Keeping{ReuseDelay: 90 * time.Minute}, "again 1h30m after"},
		"it is kept for a time": {v1alpha1.ReclaimRetain, ipam.Keeping{Retention: 720 * time.Hour}, "held for 720h,"},
		"it is kept":            {v1alpha1.ReclaimRetain, ipam.Keeping{}, "until its retention period is over"},
	} {
		if got := Afterwards(c.policy, c.keeping); !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q in it", name, got, c.want)
		}
	}
	for d, want := range map[time.Duration]string{time.Hour: "1h", 10 * time.Minute: "10m", 90 * time.Second: "1m30s", 10 * time.Second: "10s", 70 * time.Minute: "1h10m", 0: "0s"} {
		if got := inWords(d); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestWhatANewDefaultClassDoesNotServe covers each way in which it can serve less.
func TestWhatANewDefaultClassDoesNotServe(t *testing.T) {
	backed := func(b *build.ClassBuilder) *v1alpha1.IPClass {
		class := b.Obj()
		class.Status.Pools = 1
		return class
	}
	before := backed(build.Class("old").Length(24).Lengths(20, 28))
	for name, c := range map[string]struct {
		next *v1alpha1.IPClass
		want string
	}{
		"the same":                {backed(build.Class("new").Length(26).Lengths(16, 30)), ""},
		"no pool":                 {build.Class("new").Length(24).Lengths(20, 28).Obj(), "no IPPool"},
		"no length":               {backed(build.Class("new").Lengths(20, 28)), "no defaultPrefixLength"},
		"fewer lengths":           {backed(build.Class("new").Length(24).Lengths(22, 28)), "it allows /22 to /28, and old allows /20 to /28"},
		"others":                  {backed(build.Class("new").Length(24).Lengths(20, 28).With(func(s *v1alpha1.IPClassSpec) { s.Visibility, s.Project = "Consumer", "red" })), "Consumer, of project red"},
		"no room is a refusal":    {backed(build.Class("new").Length(24).Lengths(20, 28).With(func(s *v1alpha1.IPClassSpec) { s.OnExhaustion = "Reject" })), "onExhaustion is Reject"},
		"by another provisioner":  {backed(build.Class("new").Length(24).Lengths(20, 28).With(func(s *v1alpha1.IPClassSpec) { s.Provisioner = "example.com/x" })), "example.com/x"},
		"it is the default class": {before, ""},
	} {
		got := notServed(before, c.next)
		if c.want == "" && len(got) > 0 || c.want != "" && !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, c.want) }) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	if got := notServed(nil, build.Class("new").Obj()); got != nil {
		t.Errorf("got %q where there is no default class", got)
	}
}
