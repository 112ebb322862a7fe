package view

import (
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// mostLeaves limits the listed blocks of one pool, unless the caller asks for all of them.
const mostLeaves = 20

// NewTree returns the command tree.
func NewTree(e *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tree [POOL]",
		Short: "Show pools, blocks and their holders as a tree",
		Long: `Show routing domains, pools, blocks and their holders as a tree: of all that you may read, or
of one pool. Of each pool the first 20 blocks are listed, unless --all is given; child pools
are always listed.

With --cluster the tree shows a Cluster of Cluster API in the namespace: from the Cluster
by the owners of its claims, such as Machines, to the addresses.`,
		Example: `  # Everything
  kubectl ipam tree

  # One pool with all of its blocks
  kubectl ipam tree west --all

  # The addresses of a Cluster
  kubectl ipam tree --cluster prod -n team-a`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: e.First(&v1alpha1.IPPoolList{}, &v1alpha1.LocalIPPoolList{}),
	}
	o := command.BindOutput(cmd)
	e.BindEverywhere(cmd)
	all := cmd.Flags().Bool("all", false, fmt.Sprintf("list all blocks, not only the first %d of each pool", mostLeaves))
	cluster := cmd.Flags().String("cluster", "", "show the addresses of this Cluster of the namespace")
	command.CompleteWith(cmd, "cluster", completeClusters(e))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		most := mostLeaves
		if *all {
			most = math.MaxInt
		}
		switch {
		case *cluster != "" && len(args) > 0:
			return command.Coded(command.ExitUsage, fmt.Errorf("the pool %s and --cluster exclude each other: leave one of them out", args[0]))
		case *cluster != "":
			return treeOfCluster(e, cmd, o, *cluster)
		case len(args) > 0:
			return treeOfPool(e, cmd, o, args[0], most)
		}
		r, err := e.Read(cmd)
		if err != nil {
			return err
		}
		return e.Print(o, treeOf(r, most))
	}
	return cmd
}

func treeOfPool(e *command.Env, cmd *cobra.Command, o *command.Output, name string, most int) error {
	r, err := e.Read(cmd)
	if err != nil {
		return err
	}
	pool, err := findPool(e, r, name)
	if err != nil {
		return err
	}
	return e.Print(o, &TreeReport{TypeMeta: command.ReportType("TreeReport"), Nodes: []TreeNode{nodeOfPool(pool, most)}})
}

func completeClusters(e *command.Env) command.Completion {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		clusters := &metav1.PartialObjectMetadataList{}
		clusters.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("ClusterList"))
		return e.Names(cmd, clusters)
	}
}

// treeOf returns the tree of everything in the register.
func treeOf(r *register.Register, most int) *TreeReport {
	report := &TreeReport{TypeMeta: command.ReportType("TreeReport"), Nodes: []TreeNode{}}
	for _, domain := range r.Domains {
		report.Nodes = append(report.Nodes, nodeOfDomain(domain, most))
	}
	for _, pool := range r.Pools {
		if pool.Domain == nil && pool.Parent == nil {
			report.Nodes = append(report.Nodes, nodeOfPool(pool, most))
		}
	}
	return report
}

func nodeOfDomain(domain *register.Domain, most int) TreeNode {
	node := TreeNode{
		Object: command.ObjectRef{Kind: string(domain.Key.Kind), Namespace: domain.Key.Namespace, Name: domain.Key.Name},
		Family: string(domain.Key.Family),
	}
	for _, pool := range domain.Roots {
		node.Children = append(node.Children, nodeOfPool(pool, most))
	}
	for _, record := range domain.Records {
		if record.Child == nil {
			node.Children = append(node.Children, nodeOfRecord(record))
		}
	}
	return node
}

// nodeOfPool returns the node of a pool with its blocks and child pools, in address order.
func nodeOfPool(pool *register.Pool, most int) TreeNode {
	node := TreeNode{Object: command.RefOfPool(pool.Key), State: string(phaseOf(pool)), readable: true}
	if pool.CIDR.IsValid() {
		node.CIDR = pool.CIDR.String()
	}
	if !pool.IsKnown() {
		node.State, node.readable = "", false
	}
	if usage, ok := pool.Usage(); ok {
		usable := usage.Total.Sub(usage.Withheld)
		node.Use = command.Percent(usable.Sub(usage.Free), usable)
	}
	pending := map[*register.Pool]bool{}
	for _, child := range pool.Children {
		pending[child] = true
	}
	leaves := 0
	for _, record := range pool.Records {
		switch {
		case record.Child != nil && pending[record.Child]:
			delete(pending, record.Child)
			node.Children = append(node.Children, nodeOfPool(record.Child, most))
		case leaves < most:
			leaves++
			node.Children = append(node.Children, nodeOfRecord(record))
		default:
			node.Omitted++
		}
	}
	for _, child := range pool.Children { // the children without a record
		if pending[child] {
			node.Children = append(node.Children, nodeOfPool(child, most))
		}
	}
	return node
}

func nodeOfRecord(record *register.Record) TreeNode {
	block := heldBlock(nil, record)
	return TreeNode{Object: block.Holder, CIDR: block.CIDR, State: block.State, isBlock: true}
}

// TreeReport represents the output of `tree`.
type TreeReport struct {
	metav1.TypeMeta `json:",inline"`
	Nodes           []TreeNode `json:"nodes"`

	// ofCluster marks a tree that begins with a Cluster.
	ofCluster bool
}

// TreeNode represents a routing domain, a pool or a block with its holder; or in the tree of a
// Cluster an object with its address, if it has one.
type TreeNode struct {
	Object command.ObjectRef `json:"object"`
	// Family is the address family of a routing domain.
	Family string `json:"family,omitempty"`
	// CIDR is the block, or the CIDR of the pool.
	CIDR string `json:"cidr,omitempty"`
	// Address is the address of a claim of a Cluster, with the length of its subnet, and
	// Gateway the gateway of the subnet.
	Address string `json:"address,omitempty"`
	Gateway string `json:"gateway,omitempty"`
	Pool    string `json:"pool,omitempty"`
	// State is the state of a block, the phase of a pool, or the reason why a claim has no
	// address.
	State string `json:"state,omitempty"`
	// Use is the share of a pool that is in use.
	Use string `json:"use,omitempty"`
	// Omitted is the number of blocks of the pool that are not listed.
	Omitted  int        `json:"omitted,omitempty"`
	Children []TreeNode `json:"children,omitempty"`

	isBlock  bool
	readable bool
}

// Names implements command.Report.
func (r *TreeReport) Names() []string {
	var names []string
	var walk func(nodes []TreeNode)
	walk = func(nodes []TreeNode) {
		for i := range nodes {
			if n := &nodes[i]; n.Object.Kind != string(ipam.PoolKindRoutingDomain) {
				names = append(names, strings.ToLower(n.Object.Kind)+"/"+n.Object.Name)
			}
			walk(nodes[i].Children)
		}
	}
	walk(r.Nodes)
	return names
}

// Table implements command.Report.
func (r *TreeReport) Table(bool) *command.Table {
	t := &command.Table{Headers: []string{"BLOCK", "HOLDER", "STATE", "USE"}, Empty: "There are no pools that you may read."}
	cells := (*TreeNode).cells
	if r.ofCluster {
		t.Headers, cells = []string{"OBJECT", "ADDRESS", "GATEWAY", "POOL", "STATE"}, (*TreeNode).cellsInCluster
	}
	for i := range r.Nodes {
		r.Nodes[i].draw(t, "", "", cells)
	}
	return t
}

// draw adds a node and the nodes below it to a table: lead is the text before the node, and below
// is the text before the lines of its children.
func (n *TreeNode) draw(t *command.Table, lead, below string, cells func(*TreeNode, string) []command.Cell) {
	t.Add(cells(n, lead)...)
	for i := range n.Children {
		if i == len(n.Children)-1 && n.Omitted == 0 {
			n.Children[i].draw(t, below+"└─ ", below+"   ", cells)
			continue
		}
		n.Children[i].draw(t, below+"├─ ", below+"│  ", cells)
	}
	if n.Omitted > 0 {
		t.Add(command.Cell{Text: below + "└─ " + ipam.FormatCount(n.Omitted, "more block") + ": use --all", Style: command.Faint}, command.Text(""), command.Text(""), command.Text(""))
	}
}

func (n *TreeNode) cells(lead string) []command.Cell {
	block, holder := command.OrNone(n.CIDR), command.Cell{Text: n.Object.String()}
	state := command.Cell{Text: n.State, Style: styleOfState(n.State)}
	switch {
	case n.Object.Kind == string(ipam.PoolKindRoutingDomain):
		block, holder = fmt.Sprintf("domain %s, %s", n.Object.FullName(), n.Family), command.Cell{}
	case n.isBlock:
	case !n.readable:
		state = command.Cell{Text: "not readable", Style: command.Faint}
	case n.State == string(v1alpha1.PoolReady):
		state, holder.Style = command.Cell{Text: n.State, Style: command.Good}, command.Strong
	default:
		holder.Style = command.Strong
	}
	return []command.Cell{command.Text("%s%s", lead, block), holder, state, command.Text("%s", n.Use)}
}

func (n *TreeNode) cellsInCluster(lead string) []command.Cell {
	state := command.Cell{Text: n.State, Style: command.Warning}
	return []command.Cell{command.Text("%s%s", lead, n.Object.InNamespace()), command.Text("%s", n.Address), command.Text("%s", n.Gateway), command.Text("%s", n.Pool), state}
}
