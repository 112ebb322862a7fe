package view

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// treeText prints a tree for people, without headers.
func treeText(t *testing.T, o *objects, most int) []string {
	t.Helper()
	var b strings.Builder
	if err := treeOf(o.build(), most).Table(false).Write(&b, false, false); err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(b.String()), "\n")
}

func TestTreeShowsPoolsAndBlocks(t *testing.T) {
	o := (&objects{}).
		pool(build.Pool("root").CIDR("10.0.0.0/16")).
		pool(build.Pool("child").Child("root", 24)).
		pool(build.Pool("waits").Child("root", 20)).
		held("root", "10.0.0.0/24", ipam.StateBound).
		carved("root", "10.0.1.0/24", "child").
		carved("root", "10.0.2.0/24", "gone").
		held("root", "10.0.3.0/24", ipam.StateCooling).
		held("child", "10.0.1.7/32", ipam.StateRetained).
		held("unseen", "192.0.2.1/32", ipam.StateBound)
	want := []string{
		"domain default, IPv4",
		"└─ 10.0.0.0/16         IPPool root        Ready          1%",
		"   ├─ 10.0.0.0/24      IPClaim team/c-0   Bound",
		"   ├─ 10.0.1.0/24      IPPool child       Ready          <1%",
		"   │  └─ 10.0.1.7/32   IPClaim team/c-4   Retained",
		"   ├─ 10.0.2.0/24      IPPool gone        Carved",
		"   ├─ 10.0.3.0/24      IPClaim team/c-3   Cooling",
		"   └─ -                IPPool waits       Ready",
		"-                      IPPool unseen      not readable",
		"└─ 192.0.2.1/32        IPClaim team/c-5   Bound",
	}
	if diff := cmp.Diff(want, treeText(t, o, mostLeaves)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTreeShowsPoolThatOccupiesRangesOnce(t *testing.T) {
	o := (&objects{}).
		pool(build.Pool("root").CIDR("10.0.0.0/24")).
		occupied("root", "a", "10.0.0.0/24", "10.0.0.10-10.0.0.19", "10.0.0.10/31", "10.0.0.12/30", "10.0.0.16/30").
		held("root", "10.0.0.20/32", ipam.StateBound).
		held("a", "10.0.0.13/32", ipam.StateBound)
	want := []string{
		"domain default, IPv4",
		"└─ 10.0.0.0/24                IPPool root        Ready   4%",
		"   ├─ ranges of 10.0.0.0/24   IPPool a           Ready   10%",
		"   │  └─ 10.0.0.13/32         IPClaim team/c-2   Bound",
		"   └─ 10.0.0.20/32            IPClaim team/c-1   Bound",
	}
	if diff := cmp.Diff(want, treeText(t, o, mostLeaves)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTreeLimitsBlocksButNotPools(t *testing.T) {
	o := (&objects{}).pool(build.Pool("root").CIDR("10.0.0.0/16"))
	for i := range 30 {
		o.held("root", fmt.Sprintf("10.0.0.%d/32", i), ipam.StateBound)
	}
	o.pool(build.Pool("child").Child("root", 24)).carved("root", "10.0.9.0/24", "child")
	lines := treeText(t, o, mostLeaves)
	if want := 2 + mostLeaves + 2; len(lines) != want {
		t.Errorf("%d lines, want %d", len(lines), want)
	}
	if got := strings.TrimSpace(lines[len(lines)-1]); got != "└─ 10 more blocks: use --all" {
		t.Errorf("the last line is %q", got)
	}
	if got := lines[len(lines)-2]; !strings.Contains(got, "├─ 10.0.9.0/24") {
		t.Errorf("the line of the child is %q", got)
	}
}

func TestTreeNamesNetworksOfClusters(t *testing.T) {
	o := (&objects{}).pool(build.Pool("root").CIDR("10.0.0.0/16")).
		held("root", "10.0.0.0/24", ipam.StateBound).
		held("root", "10.0.1.0/24", ipam.StateBound)
	report := treeOf(o.build(), mostLeaves)
	claim := build.Claim("team", "c-0").Obj()
	claim.Annotations = map[string]string{v1alpha1.AnnotationClusterNetwork: "prod/variable.a/b/0"}
	ofHub := build.Claim("team", "c-1").Obj()
	ofHub.Labels = map[string]string{v1alpha1.LabelHubCluster: "east", v1alpha1.LabelHubClass: "leased"}
	blocks := report.Nodes[0].Children[0].Children
	report.addNetworks(map[command.ObjectRef]*command.ClusterNetwork{blocks[0].Object: command.NetworkOf(claim), blocks[1].Object: command.NetworkOf(ofHub)})
	var b strings.Builder
	if err := report.Table(false).Write(&b, false, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"IPClaim team/c-0, variable.a/b of Cluster prod   Bound", "IPClaim team/c-1, class leased of Cluster east "} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the tree does not have %q:\n%s", want, b.String())
		}
	}
}

func TestClaimsOfOthersAreForNoNetwork(t *testing.T) {
	for _, identity := range []string{"", "prod", "prod/pods", "/pods/0"} {
		claim := build.Claim("team", "c").Obj()
		claim.Annotations = map[string]string{v1alpha1.AnnotationClusterNetwork: identity}
		if got := command.NetworkOf(claim); got.String() != "" {
			t.Errorf("%q: got %s, want none", identity, got)
		}
	}
}

func TestOwnerTraversalIsBounded(t *testing.T) {
	ref := func(i int) command.ObjectRef { return command.ObjectRef{Kind: "K", Name: fmt.Sprint(i), Version: "v1"} }
	long, round := command.NewOwners(nil), command.NewOwners(nil)
	for i := range 100 {
		long.Read[ref(i)] = []command.ObjectRef{ref(i + 1)}
		round.Read[ref(i)] = []command.ObjectRef{ref((i + 1) % 3)}
	}
	if got := len(long.Above(context.Background(), ref(0))); got != command.MaxOwners {
		t.Errorf("%d owners are found, want %d", got, command.MaxOwners)
	}
	if diff := cmp.Diff([]string{"K 1", "K 2"}, texts(round.Above(context.Background(), ref(0)))); diff != "" {
		t.Errorf("owners in a circle (-want +got):\n%s", diff)
	}
}

func texts(refs []command.ObjectRef) []string {
	var texts []string
	for _, r := range refs {
		texts = append(texts, r.String())
	}
	return texts
}

func TestBlockUserIsMachine(t *testing.T) {
	machine := command.ObjectRef{APIGroup: "cluster.x-k8s.io", Kind: "Machine", Namespace: "team", Name: "m"}
	vm := command.ObjectRef{APIGroup: "infrastructure.example.com", Kind: "LabVM", Namespace: "team", Name: "vm"}
	for _, tc := range []struct {
		above []command.ObjectRef
		want  string
	}{{nil, ""}, {[]command.ObjectRef{vm}, "LabVM vm"}, {[]command.ObjectRef{vm, machine}, "Machine m"}} {
		if got := command.UserOf(tc.above); got != tc.want {
			t.Errorf("%v: %s, want %s", tc.above, got, tc.want)
		}
	}
}
