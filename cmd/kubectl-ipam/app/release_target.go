package app

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/adapt"
)

// holding is what is to be released.
type holding struct {
	obj  client.Object
	list client.ObjectList
	// record is the name of the IPAllocation, beside obj; empty where none is known.
	record string
	// refusal says why it is not to be released; nil: it may be.
	refusal error
	report  *ReleaseReport
}

// ReleaseReport is what `release` prints.
type ReleaseReport struct {
	metav1.TypeMeta `json:",inline"`
	// Object is the kind of what is released: IPClaim, IPAddressClaim or IPAllocation.
	Object    string `json:"object"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Block is empty where a claim has none.
	Block string `json:"block,omitempty"`
	Pool  string `json:"pool,omitempty"`
	Class string `json:"class,omitempty"`
	// Since is when the block was recorded, or where that may not be read, the claim made.
	Since metav1.Time `json:"since,omitzero"`
	// Afterwards is what becomes of the block.
	Afterwards string `json:"afterwards"`
	// KeptBy are finalizers of others, which keep a claim that is deleted, and its block.
	KeptBy []string `json:"keptBy,omitempty"`
	// Outcome is what was done.
	Outcome string `json:"outcome"`

	resource string
	age      string
}

func (r *ReleaseReport) names() []string { return []string{r.resource + "/" + r.Name} }

func (r *ReleaseReport) table(bool) *table {
	return &table{rows: [][]cell{{text("%s %s", r.names()[0], r.Outcome)}}}
}

// describe says what is held, and what becomes of it.
func (r *ReleaseReport) describe(out io.Writer) {
	if r.Block == "" {
		fmt.Fprintf(out, "%s %s/%s holds no block\n", r.Object, r.Namespace, r.Name)
		return
	}
	of := ""
	if r.Pool != "" {
		of += " of pool " + r.Pool
	}
	if r.Class != "" {
		of += ", class " + r.Class
	}
	fmt.Fprintf(out, "%s %s/%s holds %s%s, since %s (%s)\n", r.Object, r.Namespace, r.Name, r.Block, of, r.Since.UTC().Format(time.RFC3339), r.age)
	if r.Afterwards != "" {
		fmt.Fprintln(out, r.Afterwards)
	}
	if len(r.KeptBy) > 0 {
		fmt.Fprintf(out, "the claim stays until these finalizers are removed: %s\n", strings.Join(r.KeptBy, ", "))
	}
}

// keeps says what keeps a claim that is deleted; empty where that is not known.
func (r *ReleaseReport) keeps() string {
	if len(r.KeptBy) == 0 {
		return ": see kubectl get ipallocations -n " + r.Namespace
	}
	return ": have these finalizers removed: " + strings.Join(r.KeptBy, ", ")
}

// finalizersOfOthers are those of an object that Cadastre does not remove itself.
func finalizersOfOthers(obj client.Object) []string {
	return slices.DeleteFunc(slices.Clone(obj.GetFinalizers()), func(f string) bool {
		return strings.HasPrefix(f, v1alpha1.GroupVersion.Group+"/")
	})
}

// find reads what an argument names.
func (r *releasing) find(ctx context.Context, namespace, argument string) (*holding, error) {
	kind, name := splitKind(argument)
	key := metav1.ObjectMeta{Namespace: namespace, Name: name}
	switch kind {
	case "ipclaim":
		claim := &v1alpha1.IPClaim{ObjectMeta: key}
		if err := get(ctx, r.client, claim); err != nil {
			return nil, err
		}
		return r.claim(ctx, claim), nil
	case "ipallocation", "ipalloc":
		record := &v1alpha1.IPAllocation{ObjectMeta: key}
		if err := get(ctx, r.client, record); err != nil {
			return nil, err
		}
		return r.allocation(record), nil
	case "ipaddressclaim":
		claim := &ipamv1.IPAddressClaim{ObjectMeta: key}
		if err := get(ctx, r.client, claim); err != nil {
			return nil, err
		}
		return r.addressClaim(ctx, claim), nil
	case "":
		return r.findAny(ctx, key)
	}
	return nil, coded(ExitUsage, fmt.Errorf("%s: is neither a claim nor an allocation: write ipclaim/NAME, ipaddressclaim/NAME or ipallocation/NAME", argument))
}

// findAny reads the IPClaim, else the IPAllocation of a name.
func (r *releasing) findAny(ctx context.Context, key metav1.ObjectMeta) (*holding, error) {
	claim, record := &v1alpha1.IPClaim{ObjectMeta: key}, &v1alpha1.IPAllocation{ObjectMeta: key}
	err := r.client.Get(ctx, client.ObjectKeyFromObject(claim), claim)
	if err == nil {
		return r.claim(ctx, claim), nil
	}
	if !apierrors.IsNotFound(err) {
		return nil, err
	}
	err = r.client.Get(ctx, client.ObjectKeyFromObject(record), record)
	if err == nil {
		return r.allocation(record), nil
	}
	if !apierrors.IsNotFound(err) {
		return nil, err
	}
	return nil, coded(ExitNotFound, fmt.Errorf("%s: there is no IPClaim and no IPAllocation of that name in namespace %s: see kubectl get ipclaims,ipallocations -n %[2]s", key.Name, key.Namespace))
}

func (r *releasing) report(kind, resource string, obj client.Object) *ReleaseReport {
	return &ReleaseReport{
		KeptBy:   finalizersOfOthers(obj),
		TypeMeta: reportType("ReleaseReport"), Object: kind, resource: resource,
		Namespace: obj.GetNamespace(), Name: obj.GetName(), Since: obj.GetCreationTimestamp(),
		age: duration.HumanDuration(r.clock.Since(obj.GetCreationTimestamp().Time)),
	}
}

func (r *releasing) claim(ctx context.Context, claim *v1alpha1.IPClaim) *holding {
	report := r.report("IPClaim", "ipclaim.ipam.cadastre.dev", claim)
	held := &holding{obj: claim, list: &v1alpha1.IPClaimList{}, report: report}
	report.Class, report.Block = claim.Spec.ClassName, claim.Status.AllocatedCIDR
	if report.Block == "" {
		report.Afterwards = "nothing is held for it"
		return held
	}
	held.record = claim.Spec.AllocationName
	if ref := claim.Status.PoolRef; ref != nil {
		report.Pool = ref.Name
	}
	keeping := r.keepingOf(ctx, claim.Namespace, claim.Spec.ClassName, claim.Status.PoolRef)
	report.Afterwards = afterwards(claim.Spec.ReclaimPolicy, keeping)
	return held
}

func (r *releasing) allocation(record *v1alpha1.IPAllocation) *holding {
	report := r.report("IPAllocation", "ipallocation.ipam.cadastre.dev", record)
	report.Class, report.Block = record.Spec.ClassName, record.Spec.CIDR
	if ref := record.Spec.PoolRef; ref != nil {
		report.Pool = ref.Name
	}
	held := &holding{obj: record, list: &v1alpha1.IPAllocationList{}, record: record.Name, report: report}
	holder := record.Spec.ClaimRef
	switch _, unreadable := adapt.Record(record); {
	case unreadable != nil:
		report.Afterwards = fmt.Sprintf("it cannot be understood: %v; once deleted, pools can hand out its block", unreadable)
	case record.Spec.Purpose == v1alpha1.PurposePool:
		held.refusal = coded(ExitConflict, fmt.Errorf("IPAllocation %s: is the space of %s %s: delete the pool to release it", record.Name, holder.Kind, holder.Name))
	case record.Spec.State == v1alpha1.AllocationRetained:
		report.Afterwards = fmt.Sprintf("it is retained for a claim of the name %s%s; once deleted, the block is free, after the reuseDelay of its class or pool", holder.Name, until(record))
	case record.Spec.State == v1alpha1.AllocationCooling:
		held.refusal = coded(ExitConflict, fmt.Errorf("IPAllocation %s: is released already, and can be handed out again%s: wait until then", record.Name, after(record)))
	default:
		held.refusal = coded(ExitConflict, fmt.Errorf("IPAllocation %s: its block is held by %s %s: release that: kubectl ipam release %s/%[3]s%[5]s", record.Name, holder.Kind, holder.Name, lower(holder.Kind), inNamespace(record)))
	}
	return held
}

func (r *releasing) addressClaim(ctx context.Context, claim *ipamv1.IPAddressClaim) *holding {
	report := r.report("IPAddressClaim", "ipaddressclaim.ipam.cluster.x-k8s.io", claim)
	held := &holding{obj: claim, list: &ipamv1.IPAddressClaimList{}, report: report}
	address := &ipamv1.IPAddress{}
	if name := claim.Status.AddressRef.Name; name != "" && r.client.Get(ctx, client.ObjectKey{Namespace: claim.Namespace, Name: name}, address) == nil {
		report.Block, report.Pool = asBlock(address.Spec.Address), address.Labels[v1alpha1.LabelPool]
		held.record = address.Annotations[v1alpha1.AnnotationAllocation]
		report.Afterwards = "the address is free again as soon as the claim is gone"
	}
	if claim.Spec.PoolRef.Kind == "IPClass" {
		report.Class = claim.Spec.PoolRef.Name
	}
	if owners := claim.OwnerReferences; len(owners) > 0 && !r.force {
		held.refusal = coded(ExitConflict, fmt.Errorf("IPAddressClaim %s: belongs to %s %s, which may use the address: delete that, or release the address under it with --force", claim.Name, owners[0].Kind, owners[0].Name))
	}
	return held
}
