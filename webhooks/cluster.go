package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// The webhooks on Clusters are in config/webhook/cluster.yaml: a configuration of their own, whose
// name sorts before those of Cluster API, which validates what is filled in here.
//
// +kubebuilder:rbac:groups=ipam.cadastre.dev,resources=ipclaims,verbs=get;create;patch;delete
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get

// clusterMutator implements a webhook that fills in the networks of a Cluster when it is created, and
// fills them in again if an update leaves them out. It makes an IPClaim for each block, whose own
// admission decides about the block, before it answers. Claims of a refused Cluster are deleted;
// those of an answer that was lost are deleted by the controller of package clusternetwork, after a
// grace period.
type clusterMutator struct {
	*services
	claims *claimMutator
}

// Handle implements admission.Handler.
func (m *clusterMutator) Handle(ctx context.Context, req admission.Request) admission.Response {
	object := networkParts(req.Object.Raw)
	creates := req.Operation == admissionv1.Create
	if entries := count(object).total; entries > maxEntries {
		if !creates {
			return admission.Allowed("") // the policy cadastre-cluster-networks judges it
		}
		return denied(clusterSubject(req.Name).invalid(field.TooMany(field.NewPath("metadata and networks"), entries, maxEntries)))
	}
	d, err := newDraft(object)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if !creates {
		return m.restore(ctx, req, d)
	}
	obj := unstructured.Unstructured{Object: d.object}
	name := ipam.Name{Namespace: req.Namespace, Name: nameFor(&obj)}
	r := &clusterRequest{
		Cluster: convert.ClusterOf(name, d.object), draft: d, user: req, subject: clusterSubject(name.Name),
	}
	if r.Annotations[v1alpha1.AnnotationNetworksFilled] != "" { // it was moved or restored: its claims are, too
		return admission.Allowed("")
	}
	if err := m.create(ctx, r); err != nil {
		log.FromContext(ctx).V(1).Info("Refused a Cluster", "namespace", name.Namespace, "name", name.Name, "reason", err.Error())
		return denied(err)
	}
	return d.response(r.warnings...)
}

func clusterSubject(name string) subject {
	return subject{group: "cluster.x-k8s.io", kind: "Cluster", name: name}
}

// networkParts returns a Cluster with only the parts that have its networks: the others can be of any
// size.
func networkParts(text []byte) []byte {
	only := func(names ...string) func([]byte, string, []byte) []byte {
		return func(dst []byte, name string, value []byte) []byte {
			switch {
			case name == "labels", name == "annotations":
				return appendMembers(dst, value, appendOurs)
			case slices.Contains(names, name):
				return append(dst, value...)
			}
			return nil
		}
	}
	read, err := appendObject(make([]byte, 0, len(text)), text, func(dst []byte, name string, value []byte) []byte {
		switch name {
		case "metadata":
			return appendMembers(dst, value, only("name", "generateName"))
		case "spec":
			return appendMembers(dst, value, func(dst []byte, name string, value []byte) []byte {
				if name == "topology" {
					return appendMembers(dst, value, only("variables"))
				}
				return only("clusterNetwork", "controlPlaneEndpoint")(dst, name, value)
			})
		}
		return nil
	})
	if err != nil {
		return text
	}
	return read
}

// clusterRequest represents the create call of a Cluster.
type clusterRequest struct {
	convert.Cluster
	draft    *draft
	user     admission.Request
	subject  subject
	networks []*networkClaim
	warnings []string
}

// networkClaim holds a network of a Cluster, and the claim of its block.
type networkClaim struct {
	convert.ClusterNetwork
	claim *v1alpha1.IPClaim
	// isNew reports whether this request made the claim.
	isNew bool
	err   error
}

// create claims the networks of a Cluster, and fills them in.
func (m *clusterMutator) create(ctx context.Context, r *clusterRequest) error {
	if wrong := validation.IsValidLabelValue(r.Name.Name); len(wrong) > 0 || r.Name.Name == "" {
		return r.subject.invalid(field.Invalid(field.NewPath("metadata", "name"), r.Name.Name, fmt.Sprintf("is no label, which the claims of the Cluster need: write a name of at most %d characters", v1alpha1.MaxClusterName)))
	}
	defaults, err := m.readNamespace(ctx, r.Namespace)
	if err != nil {
		return r.subject.refusal(err)
	}
	networks, warnings, errs := r.Networks(defaults.Annotations)
	if len(errs) > 0 {
		return r.subject.invalid(errs...)
	}
	r.warnings = warnings
	for _, n := range networks {
		r.networks = append(r.networks, &networkClaim{ClusterNetwork: n})
	}
	if err := m.checkClaimant(ctx, r); err != nil {
		return err
	}
	cluster := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster"}}
	cluster.SetNamespace(r.Namespace)
	cluster.SetName(r.Name.Name)
	if err := m.refuseExisting(ctx, m.Live, cluster, r.subject); err != nil {
		return err
	}
	if isDryRun(r.user) {
		defer m.preview(ctx, r)()
	} else {
		m.claimAll(ctx, r)
	}
	err = m.fillIn(r)
	if err == nil && ctx.Err() != nil { // the caller is gone
		err = tryAgain(ipam.ErrUnconfirmed)
	}
	if err != nil {
		m.deleteClaims(ctx, r)
	}
	for _, n := range r.networks {
		if !isDryRun(r.user) {
			m.Metrics.ClusterNetwork(n.Purpose.Kind(), err == nil)
		}
	}
	return err
}

// readNamespace reads the labels and annotations of a Namespace, which are the defaults of its Clusters.
func (m *clusterMutator) readNamespace(ctx context.Context, name string) (*metav1.PartialObjectMetadata, error) {
	namespace := kubeutil.NewNamespace()
	if err := m.Live.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
		return nil, fmt.Errorf("reading the defaults of namespace %s: %w", name, err)
	}
	return namespace, nil
}

// checkClaimant refuses a user that cannot create the claims.
func (m *clusterMutator) checkClaimant(ctx context.Context, r *clusterRequest) error {
	isAllowed, err := m.Rights.MayClaim(ctx, r.user.UserInfo, r.Namespace)
	if err != nil {
		return r.subject.refusal(err)
	}
	if !isAllowed {
		return apierrors.NewForbidden(r.subject.resource(), r.Name.Name, fmt.Errorf("its networks are claimed for user %q, which cannot create ipclaims in namespace %q: have that right granted, or set the label %s to %s",
			r.user.UserInfo.Username, r.Namespace, v1alpha1.LabelClusterNetworks, v1alpha1.ClusterNetworksDisabled))
	}
	return nil
}

// fillIn writes the blocks of the claims into the Cluster, and notes them. It returns the first
// reason for which a claim was refused.
func (m *clusterMutator) fillIn(r *clusterRequest) error {
	networks := make([]convert.ClusterNetwork, 0, len(r.networks))
	for _, n := range r.networks {
		if n.err != nil {
			return r.refusal(n)
		}
		if n.Class == "" {
			continue
		}
		block, err := convert.Block(field.NewPath("spec", "cidr"), n.claim.Spec.CIDR)
		if err != nil { // it is stored without a block, as by a restore
			return tryAgain(fmt.Errorf("IPClaim %s waits for its block", n.claim.Name))
		}
		if n.Value == "" {
			n.SetBlock(block)
		}
		networks = append(networks, n.ClusterNetwork)
	}
	for _, n := range r.networks { // now that the variables have their addresses
		if n.Class != "" {
			continue
		}
		i := slices.IndexFunc(networks, func(source convert.ClusterNetwork) bool { return source.Purpose == n.SameAs })
		if n.Value == "" {
			n.SetBlock(networks[i].Block)
		}
		networks = append(networks, n.ClusterNetwork)
	}
	for _, n := range networks {
		if n.Purpose == convert.PurposeEndpoint && !n.Block.IsSingleIP() {
			return r.subject.invalid(field.Invalid(n.Annotation, n.Text, fmt.Sprintf("gives %s, and an endpoint is one address: name a class whose blocks are addresses, or write a length as in vips/32:6443", n.Block)))
		}
	}
	if err := fillNetworks(r.draft, r.Cluster, networks); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	_ = r.draft.set(r.Name.Name, "metadata", "name")
	_ = r.draft.set(convert.FormatNetworks(networks), "metadata", "annotations", v1alpha1.AnnotationNetworksFilled) // metadata is a map: the API server has read it
	return nil
}

// fillNetworks writes the values of networks into the fields of the Cluster that have none.
func fillNetworks(d *draft, cluster convert.Cluster, networks []convert.ClusterNetwork) error {
	blocks := map[convert.NetworkPurpose][]any{}
	for _, n := range networks {
		var err error
		switch variable, isVariable := n.Purpose.Variable(); {
		case isVariable:
			err = fillVariable(d, cluster, variable, n.Value)
		case n.Purpose != convert.PurposeEndpoint:
			blocks[n.Purpose] = append(blocks[n.Purpose], n.Value)
		default:
			err = fillEndpoint(d, cluster, n)
		}
		if err != nil {
			return err
		}
	}
	stated := map[convert.NetworkPurpose][]string{convert.PurposePods: cluster.Pods, convert.PurposeServices: cluster.Services}
	for purpose, values := range blocks {
		if len(stated[purpose]) > 0 {
			continue
		}
		if err := d.set(values, "spec", "clusterNetwork", string(purpose), "cidrBlocks"); err != nil {
			return err
		}
	}
	return nil
}

// fillEndpoint writes the address and the port of the control plane, each unless the Cluster has it.
func fillEndpoint(d *draft, cluster convert.Cluster, n convert.ClusterNetwork) error {
	if cluster.Host == "" {
		if err := d.set(n.Value, "spec", "controlPlaneEndpoint", "host"); err != nil {
			return err
		}
	}
	if cluster.Port == 0 && n.Port != 0 {
		return d.set(n.Port, "spec", "controlPlaneEndpoint", "port")
	}
	return nil
}

// fillVariable writes the value of a topology variable, unless it has one.
func fillVariable(d *draft, cluster convert.Cluster, name, value string) error {
	current, isListed := cluster.Variables[name]
	if current != nil && current != "" || cluster.Variables == nil {
		return nil
	}
	found, _, _ := unstructured.NestedFieldNoCopy(d.object, "spec", "topology", "variables")
	variables, _ := found.([]any)
	if isListed {
		i := slices.IndexFunc(variables, func(item any) bool {
			variable, _ := item.(map[string]any)
			return variable["name"] == name
		})
		d.changes = append(d.changes, jsonpatch.NewOperation("add", fmt.Sprintf("/spec/topology/variables/%d/value", i), value))
		return nil
	}
	variable := map[string]any{"name": name, "value": value}
	if len(variables) == 0 {
		return d.set([]any{variable}, "spec", "topology", "variables")
	}
	d.changes = append(d.changes, jsonpatch.NewOperation("add", "/spec/topology/variables/-", variable))
	return nil
}

// refusal returns the answer for a claim that was refused: it names the annotation that asks for the
// block, or the field that states it.
func (r *clusterRequest) refusal(n *networkClaim) error {
	var status apierrors.APIStatus
	if !errors.As(n.err, &status) || status.Status().Code >= http.StatusInternalServerError && status.Status().Code != http.StatusInsufficientStorage {
		return r.subject.refusal(n.err)
	}
	refusal := status.Status()
	cause := refusal.Message
	if _, nested, ok := strings.Cut(cause, "denied the request: "); ok {
		cause = nested
	}
	if refusal.Code == http.StatusUnprocessableEntity {
		return r.subject.invalid(field.Invalid(n.Annotation, n.Text, cause))
	}
	refusal.Message = fmt.Sprintf("%s: %q: %s", n.Annotation, n.Text, cause)
	if refusal.Details = nil; refusal.Code == http.StatusTooManyRequests {
		refusal.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	}
	return &apierrors.StatusError{ErrStatus: refusal}
}

// restore fills in again what an update has removed or emptied, as long as the networks are kept.
func (m *clusterMutator) restore(ctx context.Context, req admission.Request, d *draft) admission.Response {
	name := ipam.Name{Namespace: req.Namespace, Name: req.Name}
	cluster := convert.ClusterOf(name, d.object)
	var old map[string]any
	if err := json.Unmarshal(networkParts(req.OldObject.Raw), &old); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if !cluster.IsEnabled(nil) {
		namespace, err := m.readNamespace(ctx, req.Namespace)
		if err != nil || !cluster.IsEnabled(namespace.Labels) { // the policy cadastre-cluster-networks judges it
			return admission.Allowed("")
		}
	}
	before := convert.ClusterOf(name, old)
	filled := before.Annotations[v1alpha1.AnnotationNetworksFilled]
	networks := slices.DeleteFunc(convert.ParseNetworks(filled), func(n convert.ClusterNetwork) bool { return !before.Has(n) })
	for i := range networks {
		networks[i].Port = before.Port // only of the endpoint
	}
	if err := fillNetworks(d, cluster, networks); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if cluster.Annotations[v1alpha1.AnnotationNetworksFilled] == "" {
		_ = d.set(filled, "metadata", "annotations", v1alpha1.AnnotationNetworksFilled) // metadata is a map: the API server has read it
	}
	return d.response()
}
