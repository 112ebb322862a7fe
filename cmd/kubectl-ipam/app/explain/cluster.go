package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/terminal"
	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// ClusterReport holds the output of `explain` about a Cluster of Cluster API.
type ClusterReport struct {
	metav1.TypeMeta `json:",inline"`
	Namespace       string `json:"namespace"`
	Name            string `json:"name"`
	// Enabled reports whether the networks are filled in and kept, by the labels of the Cluster and
	// its Namespace; Message states it with these labels.
	Enabled bool   `json:"enabled"`
	Message string `json:"message"`
	// Networks holds the networks that were filled in, then those that annotations ask for.
	Networks []Network `json:"networks"`
	// Errors and Warnings are about the annotations.
	Errors   []string `json:"errors,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

// Network represents one block of a Cluster.
type Network struct {
	Purpose string `json:"purpose"`
	// Value is the block or the address; empty if the Cluster has none.
	Value string `json:"value,omitempty"`
	// Class is empty if another network of the Cluster has the address too.
	Class string `json:"class,omitempty"`
	// Claim is the IPClaim that holds the block, or would.
	Claim string `json:"claim,omitempty"`
	// State is Bound, another reason of the claim's condition Ready, or one of the states below.
	State   string `json:"state"`
	Message string `json:"message,omitempty"`
	// Waits explains a claim that waits, or the claim that a create of the Cluster would make.
	Waits *Report `json:"waits,omitempty"`
}

// The states of networks, besides the reasons of claims.
const (
	stateBound     = string(v1alpha1.ClaimBound)
	stateShared    = "Shared"    // another network of the Cluster has the claim
	stateReplaced  = "Replaced"  // the Cluster has another value than was filled in
	stateUnclaimed = "Unclaimed" // there is no claim of the value
	stateEmpty     = "Empty"     // the Cluster has no value
	stateConflict  = v1alpha1.ReasonConflict
)

// clusterQuestion holds the Cluster that the caller asks about, its Namespace, and the time.
type clusterQuestion struct {
	convert.Cluster
	namespace *metav1.PartialObjectMetadata
	now       time.Time
}

func findCluster(ctx context.Context, e *command.Env, c client.Client, name ipam.Name) (*clusterQuestion, error) {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Cluster"))
	obj.SetNamespace(name.Namespace)
	obj.SetName(name.Name)
	if err := command.GetCluster(ctx, c, obj); err != nil {
		return nil, err
	}
	q := &clusterQuestion{
		Cluster:   convert.ClusterOf(name, obj.Object),
		namespace: kubeutil.NewNamespace(),
		now:       e.Clock.Now(),
	}
	err := c.Get(ctx, client.ObjectKey{Name: name.Namespace}, q.namespace)
	if apierrors.IsForbidden(err) {
		e.Note("you may not get namespace %s, so its label and its defaults for Clusters are left out: ask for the right to get it", name.Namespace)
		err = nil
	}
	return q, err
}

// networks returns the networks that were filled in and those that annotations ask for, and adds the
// mistakes in the annotations to the report.
func (q *clusterQuestion) networks(report *ClusterReport) []convert.ClusterNetwork {
	networks := convert.ParseNetworks(q.Annotations[v1alpha1.AnnotationNetworksFilled])
	report.Message = "its networks are filled in when it is created, and kept"
	if report.Enabled = q.IsEnabled(q.namespace.Labels); !report.Enabled {
		const label = v1alpha1.LabelClusterNetworks
		report.Message = fmt.Sprintf("its networks are not filled in and not kept: the label %s is %q on the Cluster and %q on its Namespace: set one of them to %s",
			label, q.Labels[label], q.namespace.Labels[label], v1alpha1.ClusterNetworksEnabled)
		return networks
	}
	asked, warnings, errs := q.Networks(q.namespace.Annotations)
	report.Warnings = warnings
	for _, err := range errs {
		report.Errors = append(report.Errors, err.Error())
	}
	return append(networks, convert.WithoutNoted(asked, networks)...)
}

// clusterExplanation returns the report that explains the networks of a Cluster.
func clusterExplanation(ctx context.Context, c client.Reader, q *clusterQuestion, knowledge *Knowledge) (*ClusterReport, error) {
	report := &ClusterReport{TypeMeta: command.ReportType("ExplainClusterReport"), Namespace: q.Namespace, Name: q.Name.Name, Networks: []Network{}}
	for _, n := range q.networks(report) {
		claim := &v1alpha1.IPClaim{}
		err := c.Get(ctx, client.ObjectKey{Namespace: q.Namespace, Name: n.ClaimName(q.Name)}, claim)
		if kubeutil.IsNotFound(err) {
			claim, err = nil, nil
		}
		if err != nil {
			return nil, err
		}
		report.Networks = append(report.Networks, q.explainNetwork(ctx, n, claim, knowledge))
	}
	return report, nil
}

// explainNetwork judges a network by its claim, which is nil if there is none.
func (q *clusterQuestion) explainNetwork(ctx context.Context, n convert.ClusterNetwork, claim *v1alpha1.IPClaim, knowledge *Knowledge) Network {
	network := Network{Purpose: string(n.Purpose), Value: n.Value, Class: n.Class, Claim: n.ClaimName(q.Name)}
	with := func(state, format string, args ...any) Network {
		network.State, network.Message = state, fmt.Sprintf(format, args...)
		return network
	}
	switch {
	case n.Class == "":
		network.Claim = ""
		return with(stateShared, "another network of the Cluster has the address, and the claim")
	case n.Value != "" && !q.Has(n):
		return with(stateReplaced, "the Cluster has another value: its claim is not kept any more")
	case n.Value == "":
		claim = n.Claim(q.Name)
		claim.CreationTimestamp = metav1.NewTime(q.now) // behind all that wait
		network.Waits = foresee(ctx, claim, knowledge)
		return with(stateEmpty, "a Cluster gets its networks only when it is created: create it again, or write a free block into it, which is then claimed")
	case claim == nil:
		return with(stateUnclaimed, "no IPClaim holds it: see the events of the Cluster, and whether Cadastre runs")
	case convert.ClusterOfClaim(claim) != q.Name.Name:
		return with(stateConflict, "IPClaim %s is not one of this Cluster: delete it", claim.Name)
	case claim.Spec.CIDR != n.Block.String():
		return with(stateConflict, "IPClaim %s holds %s: delete that claim, or restore its block", claim.Name, claim.Spec.CIDR)
	}
	report := Explanation(ctx, aboutClaim(claim), knowledge)
	switch {
	case report.Phase != stateBound:
		network.State, network.Waits = report.Reason, report
	case report.Reason == v1alpha1.ReasonConflict:
		return with(stateConflict, "%s", report.Message)
	case !claim.DeletionTimestamp.IsZero():
		return with(stateBound, "IPClaim %s was deleted, and holds the block until the Cluster is gone", claim.Name)
	default:
		network.State = stateBound
	}
	return network
}

// foresee explains a claim that a create of the Cluster would make.
func foresee(ctx context.Context, claim *v1alpha1.IPClaim, knowledge *Knowledge) *Report {
	q := aboutClaim(claim)
	q.report.Reason, q.report.Message = stateEmpty, "there is no claim for it"
	if knowledge.operator != nil && q.invalid == nil {
		order := allocator.Order{Origin: allocator.OriginAdmission, Holder: q.holder()}
		var err error
		if order.Resolution, err = knowledge.operator.Resolve(ctx, q.request); err == nil {
			_, err = knowledge.operator.Preview(order)
		}
		if err == nil {
			q.report.Reason, q.report.Message = string(v1alpha1.CandidateFits), "a block is free for it"
			q.report.Asks = asks(q.request, order.Resolution.Terms)
			return &q.report
		}
		q.report.Reason, q.report.Message = convert.ClaimWaits(err).Reason, err.Error()
	}
	report := Explanation(ctx, q, knowledge)
	report.Order = nil // the claim is refused instead of stored
	return report
}

// Names implements command.Report.
func (r *ClusterReport) Names() []string { return []string{"cluster/" + r.Name} }

// Table returns the table of networks.
func (r *ClusterReport) Table(bool) *command.Table {
	t := &command.Table{Headers: []string{"PURPOSE", "VALUE", "CLASS", "CLAIM", "STATE"}}
	for i := range r.Networks {
		n := &r.Networks[i]
		state := command.Cell{Text: n.State, Style: command.Warning}
		if n.State == stateBound || n.State == stateShared {
			state.Style = command.InUse
		}
		t.Add(append(command.Texts(n.Purpose, n.Value, n.Class, n.Claim), state)...)
	}
	return t
}

// Draw returns the report for people.
func (r *ClusterReport) Draw(painted bool) string {
	var out strings.Builder
	fmt.Fprintf(&out, "Cluster %s/%s: %s\n", r.Namespace, r.Name, terminal.PrintableLines(r.Message))
	for _, mistake := range slices.Concat(r.Errors, r.Warnings) {
		fmt.Fprintln(&out, terminal.PrintableLines(mistake))
	}
	if len(r.Networks) > 0 {
		fmt.Fprintln(&out)
		_ = r.Table(false).Write(&out, painted, true) // to memory
	}
	var messages []string
	for i := range r.Networks {
		if n := &r.Networks[i]; n.Message != "" && !slices.Contains(messages, n.State+": "+n.Message) {
			messages = append(messages, n.State+": "+n.Message)
			fmt.Fprintln(&out, terminal.PrintableLines(messages[len(messages)-1]))
		}
	}
	for i := range r.Networks {
		if n := &r.Networks[i]; n.Waits != nil {
			fmt.Fprintf(&out, "\n%s: IPClaim %s asks for %s\n", terminal.Printable(n.Purpose), n.Claim, terminal.Printable(n.Waits.Asks))
			n.Waits.writeWaiting(&out, painted)
		}
	}
	return out.String()
}
