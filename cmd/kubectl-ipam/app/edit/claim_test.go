package edit

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

func TestChangedRequestConflicts(t *testing.T) {
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

func TestExitCodeFollowsClaimReason(t *testing.T) {
	for reason, want := range map[string]command.ExitCode{
		v1alpha1.ReasonPoolExhausted: command.ExitExhausted, v1alpha1.ReasonCannotFit: command.ExitExhausted, v1alpha1.ReasonPoolNotReady: command.ExitExhausted, v1alpha1.ReasonWaitingForProvisioner: command.ExitExhausted,
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
