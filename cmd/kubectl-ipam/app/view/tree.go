package view

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/internal/convert"
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
		ValidArgsFunction: e.FirstPool(),
	}
	e.BindEverywhere(cmd)
	all := cmd.Flags().Bool("all", false, fmt.Sprintf("list all blocks, not only the first %d of each pool", mostLeaves))
	cluster := cmd.Flags().String("cluster", "", "show the addresses of this Cluster of the namespace")
	clusters := &metav1.PartialObjectMetadataList{}
	clusters.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("ClusterList"))
	command.CompleteWith(cmd, "cluster", e.CompleteNames(clusters))
	e.RunReport(cmd, func(cmd *cobra.Command, args []string) (command.Report, error) {
		most := mostLeaves
		if *all {
			most = math.MaxInt
		}
		if *cluster != "" && len(args) > 0 {
			return nil, command.Coded(command.ExitUsage, fmt.Errorf("the pool %s and --cluster exclude each other: leave one of them out", args[0]))
		}
		if *cluster != "" {
			return treeOfCluster(e, cmd, *cluster)
		}
		r, err := e.ReadScope(cmd, nil)
		if err != nil {
			return nil, err
		}
		report := treeOf(r, most)
		if len(args) > 0 {
			pool, err := findPool(e, r, args[0])
			if err != nil {
				return nil, err
			}
			report.Nodes = []TreeNode{nodeOfPool(pool, most)}
		}
		networks, err := clusterNetworks(e, cmd)
		report.addNetworks(networks)
		return report, err
	})
	return cmd
}

// clusterNetworks returns the networks of Clusters, and the classes of other clusters, by the claims that
// hold their blocks. It leaves out claims that the caller cannot list, as the register does.
func clusterNetworks(e *command.Env, cmd *cobra.Command) (map[command.ObjectRef]*command.ClusterNetwork, error) {
	c, namespace, err := e.ClientAndNamespace()
	if err != nil {
		return nil, err
	}
	networks := map[command.ObjectRef]*command.ClusterNetwork{}
	claims := &metav1.PartialObjectMetadataList{}
	claims.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("IPClaimList"))
	listing := register.Each("ipclaims", claims, func(claim *metav1.PartialObjectMetadata) {
		holder := convert.HolderOfClaim(ipam.Name{Namespace: claim.Namespace, Name: claim.Name})
		networks[command.RefOfHolder(holder)] = command.NetworkOf(claim)
	})
	for _, label := range []string{convert.LabelClusterName, v1alpha1.LabelHubCluster} {
		if _, err := register.List(cmd.Context(), c, namespace, listing, client.HasLabels{label}); err != nil {
			return nil, err
		}
	}
	return networks, nil
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
	node := TreeNode{Object: command.RefOfPool(pool.Key), readable: pool.IsKnown()}
	if pool.CIDR.IsValid() {
		node.CIDR, node.extent = pool.CIDR.String(), pool.Extent()
	}
	if pool.IsKnown() {
		node.State = string(pool.Object.PoolStatus().Phase)
	}
	if usage, ok := pool.Usage(); ok {
		usable := usage.Total.Sub(usage.Withheld)
		node.Use = command.Percent(usable.Sub(usage.Free), usable)
	}
	pending := sets.New(pool.Children...)
	leaves := 0
	for _, record := range pool.Records {
		switch {
		case record.Child != nil && pending.Has(record.Child):
			pending.Delete(record.Child)
			node.Children = append(node.Children, nodeOfPool(record.Child, most))
		case record.Child != nil && record.Child.Parent == pool && record.Child.Occupied != nil: // another block of a pool that is listed
		case leaves < most:
			leaves++
			node.Children = append(node.Children, nodeOfRecord(record))
		default:
			node.Omitted++
		}
	}
	for _, child := range pool.Children { // the children without a record
		if pending.Has(child) {
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
	Omitted int `json:"omitted,omitempty"`
	// Network is the network of a Cluster that has the block.
	Network  *command.ClusterNetwork `json:"network,omitempty"`
	Children []TreeNode              `json:"children,omitempty"`

	isBlock, readable bool
	// extent is the CIDR, or for a pool that holds only ranges of it, these.
	extent string
}

// addNetworks adds the networks that have the blocks, by the holders.
func (r *TreeReport) addNetworks(networks map[command.ObjectRef]*command.ClusterNetwork) {
	var walk func(nodes []TreeNode)
	walk = func(nodes []TreeNode) {
		for i := range nodes {
			nodes[i].Network = networks[nodes[i].Object]
			walk(nodes[i].Children)
		}
	}
	walk(r.Nodes)
}

// Names implements command.Report.
func (r *TreeReport) Names() []string {
	var names []string
	var walk func(nodes []TreeNode)
	walk = func(nodes []TreeNode) {
		for i := range nodes {
			if n := &nodes[i]; n.Object.Kind != string(ipam.PoolKindRoutingDomain) {
				names = append(names, n.Object.Argument())
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
		t.Add(command.Cell{Text: below + "└─ " + ipam.FormatCount(n.Omitted, "more block") + ": use --all", Style: command.Faint})
	}
}

func (n *TreeNode) cells(lead string) []command.Cell {
	block, holder := command.OrNone(cmp.Or(n.extent, n.CIDR)), command.Cell{Text: n.withNetwork(n.Object.String())}
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
	return []command.Cell{{Text: lead + block}, holder, state, {Text: n.Use}}
}

// withNetwork returns the name of the object with the network that has its block.
func (n *TreeNode) withNetwork(name string) string {
	if n.Network == nil {
		return name
	}
	return name + ", " + n.Network.String()
}

func (n *TreeNode) cellsInCluster(lead string) []command.Cell {
	return []command.Cell{
		{Text: lead + n.withNetwork(n.Object.InNamespace())}, {Text: n.Address}, {Text: n.Gateway}, {Text: n.Pool}, {Text: n.State, Style: command.Warning},
	}
}

// treeOfCluster returns the addresses of a Cluster.
func treeOfCluster(e *command.Env, cmd *cobra.Command, name string) (*TreeReport, error) {
	c, namespace, err := e.ClientAndNamespace()
	if err != nil {
		return nil, err
	}
	t := &clusterTree{client: c, owners: command.NewOwners(c), namespace: namespace, name: name}
	if err := t.read(cmd.Context(), e); err != nil {
		return nil, err
	}
	root := t.build(cmd.Context())
	t.owners.Explain(e)
	return &TreeReport{TypeMeta: command.ReportType("TreeReport"), Nodes: []TreeNode{root}, ofCluster: true}, nil
}

// clusterTree builds the tree of a Cluster from the claims that belong to it.
type clusterTree struct {
	client          client.Client
	owners          *command.Owners
	namespace, name string

	claims []TreeNode
}

// read reads the claims of the Cluster, and their addresses; of the IPClaims, those with its label.
func (t *clusterTree) read(ctx context.Context, e *command.Env) error {
	cluster := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: t.name}}
	cluster.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Cluster"))
	err := command.GetCluster(ctx, t.client, cluster)
	if apierrors.IsForbidden(err) {
		e.Note("you may not get clusters, so it is not known whether %s exists", t.name)
	} else if err != nil {
		return err
	}
	claims, addresses := &ipamv1.IPAddressClaimList{}, &ipamv1.IPAddressList{}
	if err := t.client.List(ctx, claims, client.InNamespace(t.namespace)); err != nil {
		return fmt.Errorf("listing ipaddressclaims: %w", err)
	}
	if err := t.client.List(ctx, addresses, client.InNamespace(t.namespace)); err != nil {
		return fmt.Errorf("listing ipaddresses: %w", err)
	}
	addressOf := map[string]*ipamv1.IPAddress{}
	for i := range addresses.Items {
		addressOf[addresses.Items[i].Spec.ClaimRef.Name] = &addresses.Items[i]
	}
	for i := range claims.Items {
		if claim := &claims.Items[i]; claim.Spec.ClusterName == t.name || claim.Labels[clusterv1.ClusterNameLabel] == t.name {
			t.claims = append(t.claims, nodeOfAddressClaim(claim, addressOf[claim.Name]))
			t.owners.Read[t.claims[len(t.claims)-1].Object] = command.OwnersOf(claim)
		}
	}
	own := &v1alpha1.IPClaimList{}
	err = t.client.List(ctx, own, client.InNamespace(t.namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: t.name})
	if apierrors.IsForbidden(err) {
		e.Note("you may not list ipclaims in namespace %s, so some may be missing here: ask for the right to list them", t.namespace)
		err = nil
	}
	for i := range own.Items {
		t.claims = append(t.claims, nodeOfClaim(&own.Items[i]))
	}
	return err
}

func nodeOfClaim(claim *v1alpha1.IPClaim) TreeNode {
	holder := convert.HolderOfClaim(ipam.Name{Namespace: claim.Namespace, Name: claim.Name})
	node := TreeNode{Object: command.RefOfHolder(holder), Address: claim.Status.AllocatedCIDR, Network: command.NetworkOf(claim)}
	if claim.Status.PoolRef != nil {
		node.Pool = claim.Status.PoolRef.Name
	}
	if node.Address == "" {
		node.State = waitReason(claim.Status.Conditions, v1alpha1.ConditionReady)
	}
	return node
}

// nodeOfAddressClaim returns the node of a claim with its address, which is nil if it has none.
func nodeOfAddressClaim(claim *ipamv1.IPAddressClaim, address *ipamv1.IPAddress) TreeNode {
	holder := convert.HolderOfAddressClaim(ipam.Name{Namespace: claim.Namespace, Name: claim.Name})
	node := TreeNode{Object: command.RefOfHolder(holder), Pool: claim.Spec.PoolRef.Name}
	if address == nil {
		node.State = waitReason(claim.Status.Conditions, clusterv1.ReadyCondition)
		return node
	}
	node.Address, node.Gateway, node.Pool = address.Spec.Address, address.Spec.Gateway, address.Spec.PoolRef.Name
	if address.Spec.Prefix != nil {
		node.Address = fmt.Sprintf("%s/%d", address.Spec.Address, *address.Spec.Prefix)
	}
	return node
}

// waitReason returns the state of a claim that is not served, with the reason of its condition.
func waitReason(conditions []metav1.Condition, kind string) string {
	if ready := meta.FindStatusCondition(conditions, kind); ready != nil {
		return "Waiting: " + ready.Reason
	}
	return "Waiting"
}

// build returns the tree, with each claim below its owners, and the owners below the Cluster.
func (t *clusterTree) build(ctx context.Context) TreeNode {
	top := command.ObjectRef{APIGroup: clusterv1.GroupVersion.Group, Kind: "Cluster", Namespace: t.namespace, Name: t.name, Version: clusterv1.GroupVersion.Version}
	isTop := func(owner command.ObjectRef) bool {
		return owner.APIGroup == top.APIGroup && owner.Kind == top.Kind && owner.Name == top.Name
	}
	root := TreeNode{Object: top}
	for _, claim := range t.claims {
		path := t.owners.Above(ctx, claim.Object)
		if i := slices.IndexFunc(path, isTop); i >= 0 {
			path = path[:i]
		}
		at := &root
		for _, owner := range slices.Backward(path) {
			at = at.child(owner)
		}
		at.Children = append(at.Children, claim)
	}
	root.sort()
	return root
}

// child returns the node of an object below another node, and adds it if there is none yet.
func (n *TreeNode) child(object command.ObjectRef) *TreeNode {
	i := slices.IndexFunc(n.Children, func(child TreeNode) bool { return child.Object == object })
	if i < 0 {
		i = len(n.Children)
		n.Children = append(n.Children, TreeNode{Object: object})
	}
	return &n.Children[i]
}

// sort orders nodes by kind and name.
func (n *TreeNode) sort() {
	slices.SortStableFunc(n.Children, func(a, b TreeNode) int { return strings.Compare(a.Object.String(), b.Object.String()) })
	for i := range n.Children {
		n.Children[i].sort()
	}
}
