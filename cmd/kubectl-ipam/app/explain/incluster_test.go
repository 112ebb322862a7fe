package explain

import (
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/internal/convert"
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// inCluster has the pool team-a/nodes of one address, which the claim vm holds.
func inCluster(annotations map[string]string) *scene {
	nodes := build.Served(build.InClusterPool("team-a", "nodes", 24, "10.0.0.10"), v1alpha1.ReasonReady)
	nodes.Annotations = annotations
	s := new(scene)
	s.objects.InClusterPools = append(s.objects.InClusterPools, nodes)
	key, block := convert.KeyOf(nodes), netip.MustParsePrefix("10.0.0.10/32")
	s.records(ipam.Record{
		Name: convert.RecordOfPool("system", key), Block: block, Pool: ipam.LocalDomainNamed("team-a", "default", ipam.IPv4),
		Holder: convert.HolderOfPool(key), HolderUID: "nodes", Purpose: ipam.PurposePool, State: ipam.StateBound,
	})
	s.records(ipam.Record{
		Name: ipam.Name{Namespace: "team-a", Name: "of-vm"}, Block: block, Pool: key, Holder: convert.HolderOfAddressClaim(ipam.Name{Namespace: "team-a", Name: "vm"}),
		Purpose: ipam.PurposeClaim, State: ipam.StateBound, RequestedBy: "alice",
	})
	return s
}

func vmClaim(name string) *ipamv1.IPAddressClaim {
	return build.AddressClaim("team-a", name).From(incluster.GroupVersion.Group, "InClusterIPPool", "nodes").Obj()
}

func TestClaimOfInClusterPoolIsExplained(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(command.Scheme()).WithObjects(&ipamv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "vm"}, Spec: ipamv1.IPAddressSpec{Address: "10.0.0.10", PoolRef: vmClaim("vm").Spec.PoolRef},
	}).Build()
	vm := vmClaim("vm")
	vm.Status.AddressRef.Name = "vm"
	report := inCluster(nil).explainsQuestion(t, aboutAddressClaim(t.Context(), c, vm))
	if report.Block != "10.0.0.10/32" || report.Record != "of-vm" || report.RequestedBy != "alice" || len(report.From) != 2 {
		t.Errorf("the claim that has an address: %+v", report)
	}
	waits := inCluster(nil).explainsQuestion(t, aboutAddressClaim(t.Context(), c, vmClaim("next")))
	if len(waits.Candidates) != 1 || waits.Candidates[0].Reason != v1alpha1.CandidateNoFreeBlock || len(waits.Remedies) == 0 || !strings.Contains(waits.Remedies[0], "release ipaddressclaim/vm -n team-a") {
		t.Errorf("the claim that waits: %+v, %q", waits.Candidates, waits.Remedies)
	}
	paused := inCluster(map[string]string{v1alpha1.AnnotationPaused: ""}).explainsQuestion(t, aboutAddressClaim(t.Context(), c, vmClaim("next")))
	if len(paused.Remedies) != 1 || !strings.HasSuffix(paused.Remedies[0], "kubectl ipam resume inclusterippool/nodes -n team-a") {
		t.Errorf("the claim of a paused pool: %q", paused.Remedies)
	}
	selecting := build.Claim("team-a", "selecting").Obj()
	selecting.Spec.PoolSelector = &v1alpha1.PoolSelector{MatchExpressions: []v1alpha1.PoolSelectorExpression{{Key: "zone", Operator: metav1.LabelSelectorOpDoesNotExist}}}
	if report := inCluster(nil).explains(t, selecting); len(report.Candidates) > 0 {
		t.Errorf("an IPClaim that selects pools: %+v", report.Candidates)
	}
}
