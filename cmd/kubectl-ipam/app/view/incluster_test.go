package view

import (
	"math"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/internal/convert"
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/observe/history"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// inCluster returns the pools nodes of namespace team, with two own records and the address of a claim,
// and global, which the in-cluster provider hands out; beside an IPPool of the name nodes.
func inCluster() *objects {
	nodes := build.Served(build.InClusterPool("team", "nodes", 24, "10.0.0.10-10.0.0.11", "10.0.0.20"), v1alpha1.ReasonReady)
	nodes.Status.Phase = v1alpha1.PoolReady
	global := build.Served(&incluster.GlobalInClusterIPPool{Spec: build.InClusterPool("", "", 24, "10.7.0.10").Spec}, v1alpha1.ReasonProviderRunning)
	global.Name, global.Status.Phase = "global", v1alpha1.PoolPaused
	o := (&objects{}).pool(build.Pool("nodes").CIDR("10.9.0.0/24"))
	o.InClusterPools = []v1alpha1.Pool{nodes, global}
	own := func(block string) {
		o.record("", block, ipam.StateBound, convert.HolderOfPool(convert.KeyOf(nodes)), ipam.PurposePool)
		spec := &o.Allocations[len(o.Allocations)-1].Spec
		spec.PoolRef, spec.RoutingDomain, spec.ClaimRef.UID = nil, v1alpha1.DefaultRoutingDomain, nodes.UID
	}
	own("10.0.0.10/31")
	own("10.0.0.20/32")
	o.record("nodes", "10.0.0.11/32", ipam.StateBound, convert.HolderOfAddressClaim(ipam.Name{Namespace: "team", Name: "vm"}), ipam.PurposeClaim)
	o.Allocations[len(o.Allocations)-1].Spec.PoolRef.Kind = v1alpha1.PoolKindInClusterIPPool
	return o
}

// tableLines prints a table without headers, with single spaces.
func tableLines(t *testing.T, table *command.Table) []string {
	t.Helper()
	var b strings.Builder
	if err := table.Write(&b, false, false); err != nil {
		t.Fatal(err)
	}
	var all []string
	for line := range strings.Lines(b.String()) {
		all = append(all, strings.Join(strings.Fields(line), " "))
	}
	return all
}

func TestInClusterPoolsAreShown(t *testing.T) {
	r := inCluster().build()
	who := func(asked string) []string {
		report := NewWhoReport(r, netip.MustParsePrefix(asked), MostBlocks)
		for i := range report.Places {
			for j := range report.Places[i].Blocks {
				report.Places[i].Blocks[j].Since.Time = report.now
			}
		}
		return tableLines(t, report.Table(false))
	}
	nodes := r.Pool(ipam.PoolOfKind(ipam.PoolKindInClusterIPPool, "team", "nodes"))
	free, err := NewFreeReport(nodes, FreeOptions{Length: ipam.NoLength, Count: 5})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ got, want []string }{
		"who holds an address": {who("10.0.0.11/32"), []string{"team/default InClusterIPPool team/nodes 10.0.0.11/32 Bound IPAddressClaim team/vm - - -"}},
		"who holds another":    {who("10.0.0.20/32"), []string{"team/default InClusterIPPool team/nodes 10.0.0.20/32 Free - - - -"}},
		"of the provider":      {who("10.7.0.10/32"), []string{"default GlobalInClusterIPPool global 10.7.0.10/32 Free, but the pool is Paused - - - -"}},
		"tree": {tableLines(t, treeOf(r, math.MaxInt).Table(false)), []string{
			"domain default, IPv4", "├─ ranges of 10.7.0.0/24 GlobalInClusterIPPool global Paused 0%", "└─ 10.9.0.0/24 IPPool nodes Ready 0%",
			"domain team/default, IPv4", "└─ ranges of 10.0.0.0/24 InClusterIPPool team/nodes Ready 33%", "└─ 10.0.0.11/32 IPAddressClaim team/vm Bound",
		}},
		"pools": {tableLines(t, reportOfPools(r, nil).Table(false)), []string{
			"GlobalInClusterIPPool global ranges of 10.7.0.0/24 ░░░░░░░░░░ 0% 0 0 1 0 /32 0",
			"nodes 10.9.0.0/24 ░░░░░░░░░░ 0% 0 0 256 0 /24 0",
			"InClusterIPPool team/nodes ranges of 10.0.0.0/24 ███░░░░░░░ 33% 1 0 2 0 /32 1",
		}},
		"free": {free.Blocks, []string{"10.0.0.10/32", "10.0.0.20/32"}},
		"map":  {lines(mapReport(nodes, nodes.Span(), 80))[:1], []string{"10.0.0.10 /32 .#--------."}},
	} {
		if diff := cmp.Diff(test.want, test.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestPoolIsFoundByKind(t *testing.T) {
	e := command.NewEnv(genericiooptions.NewTestIOStreamsDiscard())
	*e.Flags.Namespace = "team"
	for argument, want := range map[string]string{
		"nodes": "IPPool nodes", "ippool/nodes": "IPPool nodes", "inclusterippool/nodes": "InClusterIPPool team/nodes",
		"global": "GlobalInClusterIPPool global", "globalinclusterippools/global": "GlobalInClusterIPPool global", "localippool/nodes": "", "ipclaim/nodes": "",
	} {
		got := ""
		if pool, err := findPool(e, inCluster().build(), argument); err == nil {
			got = command.RefOfPool(pool.Key).String()
		}
		if got != want {
			t.Errorf("%s is %q, want %q", argument, got, want)
		}
	}
}

func TestHistoryNamesKindOfInClusterPool(t *testing.T) {
	for kind, want := range map[string]string{"InClusterIPPool": "InClusterIPPool team/nodes", "LocalIPPool": "team/nodes"} {
		if got := historyCells(&history.Entry{PoolKind: kind, PoolNamespace: "team", Pool: "nodes"}, false)[3].Text; got != want {
			t.Errorf("the pool is shown as %q, want %q", got, want)
		}
	}
}
