package edit

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
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/internal/convert"
)

// Holding represents the object to release.
type Holding struct {
	obj  client.Object
	list client.ObjectList
	// record is the name of the IPAllocation, beside obj; empty if none is known.
	record string
	// refusal explains why the object cannot be released; nil if it can.
	refusal error
	Report  *ReleaseReport
}

// ReleaseReport represents the output of `release`.
type ReleaseReport struct {
	metav1.TypeMeta `json:",inline"`
	// Object is the kind of the released object: IPClaim, IPAddressClaim or IPAllocation.
	Object    string `json:"object"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Block is empty if a claim has none.
	Block string `json:"block,omitempty"`
	Pool  string `json:"pool,omitempty"`
	Class string `json:"class,omitempty"`
	// Since is the time at which the block was recorded, or, if the caller cannot read that,
	// the time at which the claim was created.
	Since metav1.Time `json:"since,omitzero"`
	// Afterwards describes how the block is treated after the release.
	Afterwards string `json:"afterwards"`
	// KeptBy holds the finalizers that Cadastre does not remove itself. They keep a deleted
	// claim, and its block.
	KeptBy []string `json:"keptBy,omitempty"`
	// Outcome is the result of the release.
	Outcome string `json:"outcome"`

	resource string
	age      string
}

// Names implements command.Report.
func (r *ReleaseReport) Names() []string { return []string{r.resource + "/" + r.Name} }

// Table implements command.Report.
func (r *ReleaseReport) Table(bool) *command.Table {
	return &command.Table{Rows: [][]command.Cell{{command.Text("%s %s", r.Names()[0], r.Outcome)}}}
}

// describe prints the held block, and how it is treated after the release.
func (r *ReleaseReport) describe(out io.Writer) {
	if r.Block == "" {
		fmt.Fprintf(out, "%s %s/%s holds no block\n", r.Object, r.Namespace, r.Name)
		return
	}
	details := ""
	if r.Pool != "" {
		details += " of pool " + r.Pool
	}
	if r.Class != "" {
		details += ", class " + r.Class
	}
	fmt.Fprintf(out, "%s %s/%s holds %s%s, since %s (%s)\n", r.Object, r.Namespace, r.Name, r.Block, details, r.Since.UTC().Format(time.RFC3339), r.age)
	if r.Afterwards != "" {
		fmt.Fprintln(out, r.Afterwards)
	}
	if len(r.KeptBy) > 0 {
		fmt.Fprintf(out, "the claim stays until these finalizers are removed: %s\n", strings.Join(r.KeptBy, ", "))
	}
}

// keeps names the finalizers that keep a deleted claim; if there are none, it refers to the
// allocations of the namespace.
func (r *ReleaseReport) keeps() string {
	if len(r.KeptBy) == 0 {
		return ": see kubectl get ipallocations -n " + r.Namespace
	}
	return ": have these finalizers removed: " + strings.Join(r.KeptBy, ", ")
}

// finalizersOfOthers returns the finalizers of an object that Cadastre does not remove itself.
func finalizersOfOthers(obj client.Object) []string {
	return slices.DeleteFunc(slices.Clone(obj.GetFinalizers()), func(f string) bool {
		return strings.HasPrefix(f, v1alpha1.GroupVersion.Group+"/")
	})
}

// find reads the object that an argument names.
func (r *Releasing) find(ctx context.Context, namespace, argument string) (*Holding, error) {
	kind, name := command.SplitKind(argument)
	key := metav1.ObjectMeta{Namespace: namespace, Name: name}
	switch kind {
	case "ipclaim":
		claim := &v1alpha1.IPClaim{ObjectMeta: key}
		if err := command.Get(ctx, r.Client, claim); err != nil {
			return nil, err
		}
		return r.Claim(ctx, claim), nil
	case "ipallocation", "ipalloc":
		record := &v1alpha1.IPAllocation{ObjectMeta: key}
		if err := command.Get(ctx, r.Client, record); err != nil {
			return nil, err
		}
		return r.allocation(record), nil
	case "ipaddressclaim":
		claim := &ipamv1.IPAddressClaim{ObjectMeta: key}
		if err := command.Get(ctx, r.Client, claim); err != nil {
			return nil, err
		}
		return r.addressClaim(ctx, claim), nil
	case "":
		return r.findAny(ctx, key)
	}
	return nil, command.Coded(command.ExitUsage, fmt.Errorf("%s: is neither a claim nor an allocation: write ipclaim/NAME, ipaddressclaim/NAME or ipallocation/NAME", argument))
}

// findAny reads the IPClaim, else the IPAllocation of a name.
func (r *Releasing) findAny(ctx context.Context, key metav1.ObjectMeta) (*Holding, error) {
	claim, record := &v1alpha1.IPClaim{ObjectMeta: key}, &v1alpha1.IPAllocation{ObjectMeta: key}
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(claim), claim)
	if err == nil {
		return r.Claim(ctx, claim), nil
	}
	if !apierrors.IsNotFound(err) {
		return nil, err
	}
	err = r.Client.Get(ctx, client.ObjectKeyFromObject(record), record)
	if err == nil {
		return r.allocation(record), nil
	}
	if !apierrors.IsNotFound(err) {
		return nil, err
	}
	return nil, command.Coded(command.ExitNotFound, fmt.Errorf("%s: there is no IPClaim and no IPAllocation of that name in namespace %s: see kubectl get ipclaims,ipallocations -n %[2]s", key.Name, key.Namespace))
}

func (r *Releasing) report(kind, resource string, obj client.Object) *ReleaseReport {
	return &ReleaseReport{
		KeptBy:   finalizersOfOthers(obj),
		TypeMeta: command.ReportType("ReleaseReport"), Object: kind, resource: resource,
		Namespace: obj.GetNamespace(), Name: obj.GetName(), Since: obj.GetCreationTimestamp(),
		age: duration.HumanDuration(r.Clock.Since(obj.GetCreationTimestamp().Time)),
	}
}

// Claim returns the block of a claim, as it is released.
func (r *Releasing) Claim(ctx context.Context, claim *v1alpha1.IPClaim) *Holding {
	report := r.report("IPClaim", "ipclaim.ipam.cadastre.dev", claim)
	held := &Holding{obj: claim, list: &v1alpha1.IPClaimList{}, Report: report}
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
	report.Afterwards = Afterwards(claim.Spec.ReclaimPolicy, keeping)
	return held
}

func (r *Releasing) allocation(record *v1alpha1.IPAllocation) *Holding {
	report := r.report("IPAllocation", "ipallocation.ipam.cadastre.dev", record)
	report.Class, report.Block = record.Spec.ClassName, record.Spec.CIDR
	if ref := record.Spec.PoolRef; ref != nil {
		report.Pool = ref.Name
	}
	held := &Holding{obj: record, list: &v1alpha1.IPAllocationList{}, record: record.Name, Report: report}
	holder := record.Spec.ClaimRef
	switch _, unreadable := convert.Record(record); {
	case unreadable != nil:
		report.Afterwards = fmt.Sprintf("it cannot be understood: %v; once deleted, pools can hand out its block", unreadable)
	case record.Spec.Purpose == v1alpha1.PurposePool:
		held.refusal = command.Coded(command.ExitConflict, fmt.Errorf("IPAllocation %s: is the space of %s %s: delete the pool to release it", record.Name, holder.Kind, holder.Name))
	case record.Spec.State == v1alpha1.AllocationRetained:
		report.Afterwards = fmt.Sprintf("it is retained for a claim of the name %s%s; once deleted, the block is free, after the reuseDelay of its class or pool", holder.Name, until(record))
	case record.Spec.State == v1alpha1.AllocationCooling:
		held.refusal = command.Coded(command.ExitConflict, fmt.Errorf("IPAllocation %s: is released already, and can be handed out again%s: wait until then", record.Name, after(record)))
	default:
		held.refusal = command.Coded(command.ExitConflict, fmt.Errorf("IPAllocation %s: its block is held by %s %s: release that: kubectl ipam release %s/%[3]s%[5]s", record.Name, holder.Kind, holder.Name, lower(holder.Kind), command.InNamespace(record)))
	}
	return held
}

func (r *Releasing) addressClaim(ctx context.Context, claim *ipamv1.IPAddressClaim) *Holding {
	report := r.report("IPAddressClaim", "ipaddressclaim.ipam.cluster.x-k8s.io", claim)
	held := &Holding{obj: claim, list: &ipamv1.IPAddressClaimList{}, Report: report}
	address := &ipamv1.IPAddress{}
	if name := claim.Status.AddressRef.Name; name != "" && r.Client.Get(ctx, client.ObjectKey{Namespace: claim.Namespace, Name: name}, address) == nil {
		report.Block, report.Pool = command.AsBlock(address.Spec.Address), address.Labels[v1alpha1.LabelPool]
		held.record = address.Annotations[v1alpha1.AnnotationAllocation]
		report.Afterwards = "the address is free again as soon as the claim is gone"
	}
	if claim.Spec.PoolRef.Kind == "IPClass" {
		report.Class = claim.Spec.PoolRef.Name
	}
	if owners := claim.OwnerReferences; len(owners) > 0 && !r.force {
		held.refusal = command.Coded(command.ExitConflict, fmt.Errorf("IPAddressClaim %s: belongs to %s %s, which may use the address: delete that, or release the address under it with --force", claim.Name, owners[0].Kind, owners[0].Name))
	}
	return held
}
