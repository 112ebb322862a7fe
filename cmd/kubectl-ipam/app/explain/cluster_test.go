package explain

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

func TestClusterExplanationJudgesNetworks(t *testing.T) {
	const enabled = v1alpha1.ClusterNetworksEnabled
	name := ipam.Name{Namespace: "team-a", Name: "prod"}
	pods := convert.ClusterNetwork{Purpose: convert.PurposePods, Length: ipam.NoLength}
	claim := func(change func(*v1alpha1.IPClaim)) []*v1alpha1.IPClaim {
		claim := pods.Claim(name)
		claim.Spec.CIDR, claim.Status.AllocatedCIDR, claim.Status.Phase = "10.1.0.0/24", "10.1.0.0/24", v1alpha1.ClaimBound
		change(claim)
		return []*v1alpha1.IPClaim{claim}
	}
	for name, test := range map[string]struct {
		claims []*v1alpha1.IPClaim
		label  string
		asks   map[string]string // annotations, without the group
		pods   string
		says   []string
	}{
		"bound": {claim(func(*v1alpha1.IPClaim) {}), enabled, map[string]string{"pods": "p", "services": "", "networks-filled": "pods=10.1.0.0/24@p,services=10.9.0.0/24@p,control-plane-endpoint=10.1.0.0"}, "10.1.0.0/24",
			[]string{"filled in when it is created, and kept", "prod-pods-", "Bound", "Replaced", "Shared"}},
		"not enabled": {nil, "", map[string]string{"pods": "p"}, "", []string{`is "" on the Cluster and "disabled" on its Namespace: set one of them to enabled`}},
		"no class":    {nil, enabled, nil, "", []string{"has no effect without a class"}},
		"a mistake":   {nil, enabled, map[string]string{"pods": "a,b,c"}, "", []string{"names more than two classes"}},
		"missing class": {nil, enabled, map[string]string{"pods": "missing"}, "", []string{
			"Empty", "only when it is created", "asks for a block of class missing", `ClassNotFound: there is no IPClass "missing"`}},
		"no room": {nil, enabled, map[string]string{"pods": "full/24"}, "", []string{
			"asks for a /24 of class full", "PoolExhausted: no free /24 in pool full: nothing is free", "Pools that could serve it:", "release 10.2.0.0/24"}},
		"room":            {nil, enabled, map[string]string{"pods": "p/24"}, "", []string{"Empty", "Fits: a block is free for it"}},
		"no claim yet":    {nil, enabled, map[string]string{"pods": "p"}, "10.1.0.0/24", []string{"Unclaimed", "see the events of the Cluster"}},
		"a foreign claim": {claim(func(c *v1alpha1.IPClaim) { c.Annotations = nil }), enabled, map[string]string{"pods": "p"}, "10.1.0.0/24", []string{"Conflict", "is not one of this Cluster: delete it"}},
		"another block":   {claim(func(c *v1alpha1.IPClaim) { c.Spec.CIDR = "10.1.9.0/24" }), enabled, map[string]string{"pods": "p"}, "10.1.0.0/24", []string{"Conflict", "holds 10.1.9.0/24: delete that claim"}},
		"a deleted claim": {claim(func(c *v1alpha1.IPClaim) { c.Finalizers, c.DeletionTimestamp = []string{"a/b"}, new(metav1.Unix(1, 0)) }), enabled, map[string]string{"pods": "p"}, "10.1.0.0/24", []string{"Bound", "until the Cluster is gone"}},
		"a claim that waits": {claim(func(c *v1alpha1.IPClaim) {
			c.Spec.CIDR, c.Spec.ClassName, c.Status.Phase = "10.2.0.0/24", "full", v1alpha1.ClaimPending
			c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Reason: v1alpha1.ReasonConflict, Message: "taken"}}
		}), enabled, map[string]string{"pods": "full"}, "10.2.0.0/24", []string{"asks for 10.2.0.0/24 of class full", "Conflict: taken", "10.2.0.0/24 is held by IPClaim team-b/"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := new(scene).class(build.Class("p").Length(24).Obj()).class(build.Class("full").Length(24).Obj()).
				pools(build.Pool("p").CIDR("10.1.0.0/16").Classes("p").Obj(), build.Pool("full").CIDR("10.2.0.0/24").Classes("full").Obj()).
				holds("full", "team-b", "10.2.0.0/24")
			q := &clusterQuestion{now: time.Unix(1000, 0), namespace: &metav1.PartialObjectMetadata{}}
			q.Name = ipam.Name{Namespace: "team-a", Name: "prod"}
			q.namespace.Labels = map[string]string{v1alpha1.LabelClusterNetworks: v1alpha1.ClusterNetworksDisabled}
			q.Annotations = map[string]string{}
			if test.label != "" {
				q.Labels = map[string]string{v1alpha1.LabelClusterNetworks: test.label}
			}
			for key, value := range test.asks {
				q.Annotations["ipam.cadastre.dev/"+key] = value
			}
			if test.pods != "" {
				q.Pods = []string{test.pods}
			}
			objects := fake.NewClientBuilder().WithScheme(command.Scheme())
			for _, claim := range test.claims {
				objects.WithObjects(claim)
			}
			report, err := clusterExplanation(t.Context(), objects.Build(), q, s.knowledge(t))
			if err != nil {
				t.Fatal(err)
			}
			text := report.Draw(false)
			for _, want := range test.says {
				if !strings.Contains(text, want) {
					t.Errorf("it does not say %q:\n%s", want, text)
				}
			}
		})
	}
}
