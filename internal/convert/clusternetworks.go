package convert

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// NetworkPurpose represents the field of a Cluster that has a block: one of the constants, or a
// topology variable.
type NetworkPurpose string

// The purposes of a Cluster's blocks, which annotations and the names of claims contain.
const (
	PurposePods     NetworkPurpose = "pods"
	PurposeServices NetworkPurpose = "services"
	PurposeEndpoint NetworkPurpose = "control-plane-endpoint"

	variablePrefix = "variable."
)

// purposeVariable returns the purpose of a topology variable.
func purposeVariable(name string) NetworkPurpose { return NetworkPurpose(variablePrefix + name) }

// Variable returns the topology variable of a purpose, and false for another purpose.
func (p NetworkPurpose) Variable() (name string, ok bool) {
	return strings.CutPrefix(string(p), variablePrefix)
}

// Kind returns the purpose for metrics and names: pods, services, endpoint or variable.
func (p NetworkPurpose) Kind() string {
	_, isVariable := p.Variable()
	switch {
	case isVariable:
		return "variable"
	case p == PurposeEndpoint:
		return "endpoint"
	}
	return string(p)
}

// path returns the field of the Cluster.
func (p NetworkPurpose) path() *field.Path {
	spec := field.NewPath("spec")
	if name, ok := p.Variable(); ok {
		return spec.Child("topology", "variables").Key(name)
	}
	if p == PurposeEndpoint {
		return spec.Child("controlPlaneEndpoint", "host")
	}
	return spec.Child("clusterNetwork", string(p), "cidrBlocks")
}

const (
	// maxFamilies bounds the blocks of pods and services: a cluster has one for each address family.
	maxFamilies = 2
	// maxVariables bounds the topology variables of a Cluster that get a block.
	maxVariables = 16
	// defaultPort is the port of an endpoint without a stated one, which kubeadm uses too.
	defaultPort = 6443
)

// ClusterNetwork represents one block of a Cluster.
type ClusterNetwork struct {
	Purpose NetworkPurpose
	// Index is the position among the blocks of the purpose.
	Index int
	// Class has the block; empty if the network SameAs has it too.
	Class string
	// Length is ipam.NoLength for the default of the class.
	Length int
	// Value is the text that the Cluster has, and Block its block; empty and invalid if a free block is to be claimed.
	Value string
	Block netip.Prefix
	// Port is the port of the endpoint.
	Port int64
	// SameAs is the purpose of the network whose address the endpoint is; empty for a network with a class.
	SameAs NetworkPurpose
	// Annotation is the annotation that asks for the block, and Text its part.
	Annotation *field.Path
	Text       string
}

// SetBlock sets the block, and the text that the Cluster gets: an address in fields that have one, a
// CIDR otherwise.
func (n *ClusterNetwork) SetBlock(block netip.Prefix) {
	n.Block, n.Value = block, block.String()
	if address := Address(block); address != "" && n.Purpose != PurposePods && n.Purpose != PurposeServices {
		n.Value = address
	}
}

// Identity returns the value of AnnotationClusterNetwork on the claim of the network.
func (n ClusterNetwork) Identity(cluster string) string {
	return fmt.Sprintf("%s/%s/%d", cluster, n.Purpose, n.Index)
}

// ClusterOfClaim returns the name of the Cluster that has the block of a claim as a network; empty if none has.
func ClusterOfClaim(claim metav1.Object) string {
	cluster, _, _ := strings.Cut(claim.GetAnnotations()[v1alpha1.AnnotationClusterNetwork], "/")
	return cluster
}

// PurposeOfClaim returns the purpose of the network of a Cluster that has the block of a claim; empty if none has.
func PurposeOfClaim(claim metav1.Object) NetworkPurpose {
	_, rest, _ := strings.Cut(claim.GetAnnotations()[v1alpha1.AnnotationClusterNetwork], "/")
	return NetworkPurpose(rest[:max(strings.LastIndexByte(rest, '/'), 0)])
}

const claimHashLength = 10

// ClaimName returns the name of the claim of the network: the same one for each create of the Cluster.
func (n ClusterNetwork) ClaimName(cluster ipam.Name) string {
	sum := sha256.Sum256([]byte(cluster.Namespace + "/" + n.Identity(cluster.Name)))
	hash := hex.EncodeToString(sum[:])[:claimHashLength]
	purpose := n.Purpose.Kind()
	if variable, ok := n.Purpose.Variable(); ok {
		purpose = dnsText(variable)
	}
	prefix := cluster.Name + "-" + purpose
	prefix = prefix[:min(len(prefix), v1alpha1.MaxClusterName-claimHashLength-1)]
	return strings.TrimRight(prefix, "-.") + "-" + hash
}

// dnsText returns a text with each character replaced that a DNS label cannot have.
func dnsText(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(text))
}

// Claim returns the claim of the network.
func (n ClusterNetwork) Claim(cluster ipam.Name) *v1alpha1.IPClaim {
	claim := &v1alpha1.IPClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cluster.Namespace, Name: n.ClaimName(cluster),
			Labels:      map[string]string{LabelClusterName: cluster.Name},
			Annotations: map[string]string{v1alpha1.AnnotationClusterNetwork: n.Identity(cluster.Name)},
		},
		Spec: v1alpha1.IPClaimSpec{ClassName: n.Class},
	}
	switch {
	case n.Block.IsValid():
		claim.Spec.CIDR = n.Block.String()
	case n.Length != ipam.NoLength:
		claim.Spec.PrefixLength = new(int32(n.Length)) //nolint:gosec // 0 to 128
	}
	return claim
}

// IsClaimedBy reports whether a claim, which may be of an earlier attempt, is one for the network.
func (n ClusterNetwork) IsClaimedBy(claim *v1alpha1.IPClaim) bool {
	spec := &claim.Spec
	return spec.ClassName == n.Class &&
		(n.Length == ipam.NoLength || spec.PrefixLength != nil && int(*spec.PrefixLength) == n.Length) &&
		(!n.Block.IsValid() || spec.CIDR == n.Block.String())
}

// FormatNetworks returns the value of AnnotationNetworksFilled: for each network with its value
// purpose=value, and @class unless another network has the claim.
func FormatNetworks(networks []ClusterNetwork) string {
	entries := make([]string, 0, len(networks))
	for _, n := range networks {
		entry := string(n.Purpose) + "=" + n.Value
		if n.Class != "" {
			entry += "@" + n.Class
		}
		entries = append(entries, entry)
	}
	return strings.Join(entries, ",")
}

// ParseNetworks reads what FormatNetworks has written. It leaves out entries that it did not write.
func ParseNetworks(text string) []ClusterNetwork {
	var networks []ClusterNetwork
	counts := map[NetworkPurpose]int{}
	for entry := range strings.SplitSeq(text, ",") {
		purpose, rest, _ := strings.Cut(entry, "=")
		value, class, _ := strings.Cut(rest, "@")
		block, err := stated(nil, value)
		if err != nil || len(networks) == 2*maxFamilies+1+maxVariables {
			continue
		}
		n := ClusterNetwork{Purpose: NetworkPurpose(purpose), Class: class, Length: ipam.NoLength, Value: value, Block: block}
		if _, isVariable := n.Purpose.Variable(); !isVariable && n.Purpose != PurposePods && n.Purpose != PurposeServices && n.Purpose != PurposeEndpoint {
			continue
		}
		n.Index = counts[n.Purpose]
		counts[n.Purpose]++
		networks = append(networks, n)
	}
	return networks
}

// WithoutNoted returns those networks of a Cluster that are none of the noted ones, by purpose and index.
func WithoutNoted(networks, noted []ClusterNetwork) []ClusterNetwork {
	return slices.DeleteFunc(networks, func(n ClusterNetwork) bool {
		return slices.ContainsFunc(noted, func(other ClusterNetwork) bool { return other.Purpose == n.Purpose && other.Index == n.Index })
	})
}

// stated reads a block or an address that a Cluster states.
func stated(path *field.Path, text string) (netip.Prefix, *field.Error) {
	if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" && !address.Is4In6() {
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	return Block(path, text)
}

// Networks returns the networks that the annotations of the Cluster ask for, or else those of its
// Namespace, in the order in which FormatNetworks has them. Values that the Cluster states are in them.
func (c Cluster) Networks(namespace map[string]string) (networks []ClusterNetwork, warnings []string, errs field.ErrorList) {
	r := networkReader{cluster: c, defaults: namespace}
	r.readBlocks(PurposePods, v1alpha1.AnnotationPods, c.Pods)
	r.readBlocks(PurposeServices, v1alpha1.AnnotationServices, c.Services)
	r.readVariables()
	r.readEndpoint()
	if !r.isAsked {
		r.errs = append(r.errs, field.Required(field.NewPath("metadata", "annotations"),
			fmt.Sprintf("the label %s=%s has no effect without a class: add %s: <IPClass>, or %s, %s or %s, to the Cluster or its Namespace, or set the label to %s",
				v1alpha1.LabelClusterNetworks, v1alpha1.ClusterNetworksEnabled, v1alpha1.AnnotationPods, v1alpha1.AnnotationServices,
				v1alpha1.AnnotationControlPlaneEndpoint, v1alpha1.AnnotationVariables, v1alpha1.ClusterNetworksDisabled)))
	}
	return r.networks, r.warnings, r.errs
}

// networkReader reads the annotations of one Cluster.
type networkReader struct {
	cluster  Cluster
	defaults map[string]string

	networks []ClusterNetwork
	warnings []string
	errs     field.ErrorList
	// isAsked reports whether an annotation asks for a network.
	isAsked bool
}

// ask holds one annotation of a Cluster or its Namespace.
type ask struct {
	text      string
	path      *field.Path
	isDefault bool
}

// read returns an annotation; false if there is none, or an empty one, which overrides a default.
func (r *networkReader) read(name string) (ask, bool) {
	a := ask{path: field.NewPath("metadata", "annotations").Key(name)}
	text, ok := r.cluster.Annotations[name]
	if a.text = text; !ok {
		a.text, a.isDefault = r.defaults[name], true
	}
	r.isAsked = r.isAsked || a.text != ""
	return a, a.text != ""
}

func (r *networkReader) fail(err *field.Error) {
	if err != nil {
		r.errs = append(r.errs, err)
	}
}

// withoutTopology reports whether the Cluster has no topology. Then only an annotation of the
// Cluster itself is a mistake.
func (r *networkReader) withoutTopology(a ask) bool {
	if r.cluster.Variables != nil {
		return false
	}
	if a.isDefault {
		r.warnings = append(r.warnings, fmt.Sprintf("%s: is a default of the Namespace for Clusters with a spec.topology, and is ignored: set it to \"\" in this Cluster to leave it out", a.path))
	} else {
		r.fail(field.Invalid(a.path, a.text, "the Cluster has no spec.topology, and so no variables: leave them out"))
	}
	return true
}

// readBlocks reads the classes of pods or services.
func (r *networkReader) readBlocks(purpose NetworkPurpose, annotation string, values []string) {
	a, ok := r.read(annotation)
	if !ok {
		return
	}
	classes := strings.SplitN(a.text, ",", maxFamilies+1)
	if len(classes) > maxFamilies {
		r.fail(field.Invalid(a.path, a.text, "names more than two classes: name one for each address family"))
		return
	}
	if len(values) > 0 && len(values) != len(classes) {
		r.fail(field.Invalid(purpose.path(), values, fmt.Sprintf("has %s where %s names %s: write one for each class in its order, or none",
			ipam.FormatCount(len(values), "block"), a.path, ipam.FormatCount(len(classes), "class"))))
		return
	}
	for i, class := range classes {
		n := r.readClass(a, class)
		n.Purpose, n.Index = purpose, i
		if len(values) > 0 {
			block, err := Block(purpose.path().Index(i), values[i])
			r.fail(err)
			n.Value, n.Block = values[i], block
		}
		r.networks = append(r.networks, n)
	}
}

// readClass reads a class, which may have a length.
func (r *networkReader) readClass(a ask, text string) ClusterNetwork {
	text = strings.TrimSpace(text)
	class, length, hasLength := strings.Cut(text, "/")
	n := ClusterNetwork{Class: class, Length: ipam.NoLength, Annotation: a.path, Text: text}
	if hasLength {
		bits, err := strconv.ParseUint(length, 10, 8)
		if err != nil || bits > 128 {
			r.fail(field.Invalid(a.path, text, "has no valid prefix length: write an IPClass, or one with a length, such as pod-networks/20"))
		}
		n.Length = int(bits)
	}
	r.errs = append(r.errs, objectName(a.path, class)...)
	return n
}

// readVariables reads the topology variables and their classes.
func (r *networkReader) readVariables() {
	a, ok := r.read(v1alpha1.AnnotationVariables)
	if !ok || r.withoutTopology(a) {
		return
	}
	entries := strings.SplitN(a.text, ",", maxVariables+1)
	if len(entries) > maxVariables {
		r.fail(field.Invalid(a.path, a.text, fmt.Sprintf("names more than %d variables: name fewer", maxVariables)))
		return
	}
	for _, entry := range entries {
		name, class, ok := strings.Cut(strings.TrimSpace(entry), "=")
		if !ok || name == "" {
			r.fail(field.Invalid(a.path, entry, "names no variable and class: write them as in lbRange=lb-ranges/28"))
			continue
		}
		n := r.readClass(a, class)
		n.Purpose, n.Text = purposeVariable(name), strings.TrimSpace(entry)
		if r.find(n.Purpose) != nil {
			r.fail(field.Invalid(a.path, n.Text, "names a variable for the second time: leave one of the two out"))
			continue
		}
		switch value := r.cluster.Variables[name].(type) {
		case nil:
		case string:
			if value != "" {
				block, err := stated(n.Purpose.path(), value)
				r.fail(err)
				n.Value, n.Block = value, block
			}
		default:
			r.fail(field.Invalid(n.Purpose.path(), value, fmt.Sprintf("is not a string, and so no block: leave it out, or remove the variable from %s", a.path)))
		}
		r.networks = append(r.networks, n)
	}
}

func (r *networkReader) find(purpose NetworkPurpose) *ClusterNetwork {
	if i := slices.IndexFunc(r.networks, func(n ClusterNetwork) bool { return n.Purpose == purpose }); i >= 0 {
		return &r.networks[i]
	}
	return nil
}

// readEndpoint reads the class of the control plane's address, or the variable that has the address.
func (r *networkReader) readEndpoint() {
	a, ok := r.read(v1alpha1.AnnotationControlPlaneEndpoint)
	if !ok {
		return
	}
	source, isVariable := strings.CutPrefix(a.text, "variable:")
	if isVariable && r.withoutTopology(a) {
		return
	}
	source, portText, hasPort := strings.Cut(source, ":")
	port := uint64(defaultPort)
	if hasPort {
		var err error
		if port, err = strconv.ParseUint(portText, 10, 16); err != nil || port == 0 {
			r.fail(field.Invalid(a.path, a.text, "has no valid port: write a class and a port, such as vips:6443, or variable:vip:6443"))
		}
	}
	n := ClusterNetwork{Length: ipam.NoLength, Annotation: a.path, Text: a.text}
	if !isVariable {
		n = r.readClass(a, source)
	}
	n.Purpose, n.Port = PurposeEndpoint, int64(port)
	if host := r.cluster.Host; host != "" {
		address, err := netip.ParseAddr(host)
		if err != nil {
			r.warnings = append(r.warnings, fmt.Sprintf("%s: %q is not an IP address, and so nothing is claimed for it: leave it out to have an address filled in", n.Purpose.path(), host))
			return
		}
		n.Value, n.Block = host, netip.PrefixFrom(address, address.BitLen())
	}
	if isVariable && !r.shareAddress(a, &n, source) {
		return
	}
	r.networks = append(r.networks, n)
}

// shareAddress makes the endpoint the address of a variable. It returns false if the variable gets none.
func (r *networkReader) shareAddress(a ask, n *ClusterNetwork, variable string) bool {
	n.SameAs = purposeVariable(variable)
	source := r.find(n.SameAs)
	switch {
	case source == nil:
		r.fail(field.Invalid(a.path, a.text, fmt.Sprintf("names variable %q, which gets no address: add %s=<IPClass> to %s", variable, variable, v1alpha1.AnnotationVariables)))
		return false
	case n.Block.IsValid() && source.Block.IsValid() && n.Block != source.Block:
		r.fail(field.Invalid(n.Purpose.path(), n.Value, fmt.Sprintf("differs from %s, whose address it is: leave one of them out", source.Purpose.path())))
	case n.Block.IsValid():
		source.Block = n.Block
		if source.Value == "" {
			source.Value = n.Value
		}
	case source.Block.IsValid():
		n.SetBlock(source.Block)
	}
	return true
}
