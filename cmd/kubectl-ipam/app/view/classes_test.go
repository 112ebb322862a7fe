package view

import (
	"context"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// answering returns a client of a cluster with these classes, in which each dry run of a claim is answered
// by its class.
func answering(answer func(claim *v1alpha1.IPClaim) error, classes ...client.Object) client.Client {
	return interceptor.NewClient(fake.NewClientBuilder().WithScheme(command.Scheme()).WithObjects(classes...).Build(), interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			options := (&client.CreateOptions{}).ApplyOptions(opts)
			if len(options.DryRun) == 0 {
				return apierrors.NewInternalError(context.Canceled)
			}
			return answer(obj.(*v1alpha1.IPClaim))
		},
	})
}

func TestClassesShowsWhatNamespaceCanUse(t *testing.T) {
	stored := func(b *build.ClassBuilder) client.Object {
		obj := b.Obj()
		obj.UID = "uid"
		obj.Status.Capacity = &v1alpha1.Capacity{Available: "9000"}
		return obj
	}
	lengthOf := map[string]*int32{}
	answer := func(claim *v1alpha1.IPClaim) error {
		lengthOf[claim.Spec.ClassName] = claim.Spec.PrefixLength
		reason := func(reason string) {
			claim.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Reason: reason, Message: "because"}}
		}
		switch claim.Spec.ClassName {
		case "two-pools":
			claim.Status.AllocatedCIDR = "10.0.0.0/26"
			claim.Status.Candidates = []v1alpha1.CandidatePool{{Available: "100", LargestFreePrefix: "/26"}, {Available: "28", LargestFreePrefix: "/8"}, {Available: "0"}}
		case "many-pools":
			claim.Status.AllocatedCIDR, claim.Status.CandidatesOmitted = "10.0.0.0/26", 3
		case "full":
			reason(v1alpha1.ReasonPoolExhausted)
		case "of-others":
			reason(v1alpha1.ReasonClassNotFound)
		}
		return nil
	}
	c := answering(answer,
		stored(build.Class("two-pools").Default().Length(26).Lengths(20, 28)), stored(build.Class("many-pools").Lengths(20, 28)),
		stored(build.Class("full")), stored(build.Class("of-others")),
	)
	report, err := (&classAsker{c, "team"}).all(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []ClassUse{
		{Name: "full", IPFamily: "IPv4", Free: "0", Message: "because"},
		{Name: "many-pools", IPFamily: "IPv4", Lengths: "/20-/28", Free: "9000", Next: "10.0.0.0/26"},
		{Name: "two-pools", Default: true, IPFamily: "IPv4", Lengths: "/20-/28", DefaultLength: "/26", Free: "128", LargestFreePrefix: "/8", Next: "10.0.0.0/26"},
	}
	if diff := cmp.Diff(want, report.Classes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if l := lengthOf["many-pools"]; l == nil || *l != 28 || lengthOf["two-pools"] != nil {
		t.Errorf("the claims ask for %v, want the smallest block of a class without default", lengthOf)
	}
}

func TestClassesReportsClassByName(t *testing.T) {
	invalid := &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusUnprocessableEntity, Message: "no default length"}}
	forbidden := &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "no claims"}}
	for name, test := range map[string]struct {
		err    error
		reason string
		code   command.ExitCode
		want   string
	}{
		"a class that serves":     {nil, "", command.ExitDone, ""},
		"a claim that is refused": {invalid, "", command.ExitDone, "no default length"},
		"a class of others":       {nil, v1alpha1.ReasonClassNotFound, command.ExitNotFound, ""},
		"no right to claim":       {forbidden, "", command.ExitForbidden, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := answering(func(claim *v1alpha1.IPClaim) error {
				if test.reason != "" {
					claim.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Reason: test.reason}}
				}
				return test.err
			})
			report, err := (&classAsker{c, "team"}).one(t.Context(), "gold")
			if command.CodeOf(err) != test.code {
				t.Fatalf("%v, want exit code %d", err, test.code)
			}
			if err == nil && report.Classes[0].Message != test.want {
				t.Errorf("the message is %q, want %q", report.Classes[0].Message, test.want)
			}
		})
	}
}
