package view

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

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
		t.Add(command.Cell{Text: below + "└─ " + ipam.Counted(n.Omitted, "more block") + ": use --all", Style: command.Faint}, command.Text(""), command.Text(""), command.Text(""))
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
