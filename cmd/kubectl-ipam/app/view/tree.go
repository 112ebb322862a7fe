package view

import (
	"fmt"
	"math"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
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

With --cluster the tree is that of a Cluster of Cluster API in the namespace: from the Cluster
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
