package view

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
)

// treeOfCluster prints the addresses of a Cluster.
func treeOfCluster(e *command.Env, cmd *cobra.Command, o *command.Output, name string) error {
	c, err := e.Client()
	if err != nil {
		return err
	}
	namespace, err := e.Namespace()
	if err != nil {
		return err
	}
	t := &clusterTree{client: c, owners: command.NewOwners(c), namespace: namespace, name: name}
	if err := t.read(cmd.Context(), e); err != nil {
		return err
	}
	root := t.build(cmd.Context())
	t.owners.Explain(e)
	return e.Print(o, &TreeReport{TypeMeta: command.ReportType("TreeReport"), Nodes: []TreeNode{root}, ofCluster: true})
}

// clusterTree builds the tree of a Cluster from the claims that belong to it.
type clusterTree struct {
	client          client.Client
	owners          *command.Owners
	namespace, name string

	claims    []TreeNode
	addresses map[string]*ipamv1.IPAddress // by the name of their claim
}

// read reads the claims of the Cluster, and their addresses.
func (t *clusterTree) read(ctx context.Context, e *command.Env) error {
	cluster := &metav1.PartialObjectMetadata{}
	cluster.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Cluster"))
	err := t.client.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: t.name}, cluster)
	switch {
	case meta.IsNoMatchError(err):
		return command.Coded(command.ExitNotFound, fmt.Errorf("cluster %s: Cluster API is not installed in this cluster", t.name))
	case apierrors.IsNotFound(err):
		return command.Coded(command.ExitNotFound, fmt.Errorf("cluster %s: there is no Cluster of that name in namespace %s: choose another one with -n", t.name, t.namespace))
	case apierrors.IsForbidden(err):
		e.Note("you may not get clusters, so it is not known whether %s exists", t.name)
	case err != nil:
		return err
	}
	claims, addresses := &ipamv1.IPAddressClaimList{}, &ipamv1.IPAddressList{}
	if err := t.client.List(ctx, claims, client.InNamespace(t.namespace)); err != nil {
		return fmt.Errorf("listing ipaddressclaims: %w", err)
	}
	if err := t.client.List(ctx, addresses, client.InNamespace(t.namespace)); err != nil {
		return fmt.Errorf("listing ipaddresses: %w", err)
	}
	t.addresses = map[string]*ipamv1.IPAddress{}
	for i := range addresses.Items {
		t.addresses[addresses.Items[i].Spec.ClaimRef.Name] = &addresses.Items[i]
	}
	for i := range claims.Items {
		if claim := &claims.Items[i]; claim.Spec.ClusterName == t.name || claim.Labels[clusterv1.ClusterNameLabel] == t.name {
			t.claims = append(t.claims, t.nodeOfAddressClaim(claim))
		}
	}
	return t.readOwnClaims(ctx, e)
}

// readOwnClaims reads the IPClaims that have the label of the Cluster.
func (t *clusterTree) readOwnClaims(ctx context.Context, e *command.Env) error {
	claims := &v1alpha1.IPClaimList{}
	err := t.client.List(ctx, claims, client.InNamespace(t.namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: t.name})
	if apierrors.IsForbidden(err) {
		e.Note("you may not list ipclaims in namespace %s, so some may be missing here: ask for the right to list them", t.namespace)
		return nil
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		node := TreeNode{Object: command.ObjectRef{APIGroup: v1alpha1.GroupVersion.Group, Kind: "IPClaim", Namespace: t.namespace, Name: claim.Name, Version: v1alpha1.GroupVersion.Version}}
		node.Address = claim.Status.AllocatedCIDR
		if claim.Status.PoolRef != nil {
			node.Pool = claim.Status.PoolRef.Name
		}
		if node.Address == "" {
			node.State = waitReason(claim.Status.Conditions, v1alpha1.ConditionReady)
		}
		t.claims = append(t.claims, node)
	}
	return err
}

func (t *clusterTree) nodeOfAddressClaim(claim *ipamv1.IPAddressClaim) TreeNode {
	node := TreeNode{Object: command.ObjectRef{APIGroup: ipamv1.GroupVersion.Group, Kind: "IPAddressClaim", Namespace: t.namespace, Name: claim.Name, Version: ipamv1.GroupVersion.Version}}
	t.owners.Read[node.Object] = command.OwnersOf(claim)
	node.Pool = claim.Spec.PoolRef.Name
	address := t.addresses[claim.Name]
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
	root := TreeNode{Object: top}
	for _, claim := range t.claims {
		path := []command.ObjectRef{}
		for _, owner := range t.owners.Above(ctx, claim.Object) {
			if owner.APIGroup == top.APIGroup && owner.Kind == top.Kind && owner.Name == top.Name {
				break
			}
			path = append(path, owner)
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
	for i := range n.Children {
		if n.Children[i].Object == object {
			return &n.Children[i]
		}
	}
	n.Children = append(n.Children, TreeNode{Object: object})
	return &n.Children[len(n.Children)-1]
}

// sort orders nodes by kind and name.
func (n *TreeNode) sort() {
	slices.SortStableFunc(n.Children, func(a, b TreeNode) int { return strings.Compare(a.Object.String(), b.Object.String()) })
	for i := range n.Children {
		n.Children[i].sort()
	}
}
