package edit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// NewRelease returns the command release.
func NewRelease(e *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "release CLAIM|ALLOCATION",
		Short: "Give a block back: delete its claim, or the allocation of a retained one",
		Long: `Give a block back: delete its claim, or, if its claim is gone and the block is retained,
its allocation; or an allocation that cannot be read, whose block no pool hands out. The
command first shows the block and what becomes of it, and asks; with --yes it does not ask.
NAME alone is an IPClaim of the namespace, else an IPAllocation; ipclaim/NAME,
ipallocation/NAME and ipaddressclaim/NAME name the kind.`,
		Example: `  kubectl ipam release web
  kubectl ipam release ipallocation/web-4kx2b7cd --yes
  kubectl ipam release web --yes --wait=30s`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: e.First(&v1alpha1.IPClaimList{}),
	}
	r := &Releasing{editing: bindEditing(e, cmd)}
	command.BindWait(cmd, &r.wait, "the block is free, or is retained")
	cmd.Flags().BoolVarP(&r.yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&r.force, "force", false, "release an IPAddressClaim that another object owns and uses, or delete an IPClaim that a Cluster keeps")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return r.run(cmd.Context(), args[0]) }
	return cmd
}

// Releasing represents one run of the command.
type Releasing struct {
	*editing
	wait       time.Duration
	yes, force bool
}

// NewReleasing returns a run that reads and deletes with a client.
func NewReleasing(e *command.Env, c client.WithWatch) *Releasing {
	return &Releasing{editing: &editing{Env: e, dryRun: command.DryRunNone, client: c}}
}

func (r *Releasing) run(ctx context.Context, argument string) error {
	if err := r.connect(); err != nil {
		return err
	}
	report, err := r.find(ctx, argument)
	if err != nil {
		return err
	}
	if format := *r.output.Flags.OutputFormat; format == "" || format == "wide" {
		report.describe(r.Out)
	}
	if report.refusal != nil {
		return report.refusal
	}
	if r.dryRun == command.DryRunNone {
		if err := r.Confirmed(ctx, r.yes, "Release it?"); err != nil {
			return err
		}
	}
	if err := r.Delete(ctx, report); err != nil {
		return err
	}
	if r.dryRun == command.DryRunNone && r.wait > 0 {
		if err := r.await(ctx, report); err != nil {
			return err
		}
	}
	return r.Print(r.output, report)
}

// Delete deletes the described object, and no later object of its name. The error can be the reason why
// it cannot be released.
func (r *Releasing) Delete(ctx context.Context, report *ReleaseReport) error {
	if report.refusal != nil {
		return report.refusal
	}
	report.Outcome = r.dryRun.Done("released")
	if r.dryRun == command.DryRunClient {
		return nil
	}
	uid := report.obj.GetUID()
	return r.client.Delete(ctx, report.obj, &client.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, DryRun: r.dryRun.OnServer()})
}

// await watches the record of the block until the block is free, or retained. If no record is
// known, it watches the claim until the claim is gone.
func (r *Releasing) await(ctx context.Context, report *ReleaseReport) error {
	watched, gone := report.obj, "released, and gone"
	if report.record != "" {
		watched, gone = &v1alpha1.IPAllocation{}, "released: its block is free"
		watched.SetNamespace(report.Namespace)
		watched.SetName(report.record)
	}
	_, err := command.Await(ctx, r.client, watched, r.wait, func(seen client.Object) bool {
		record, isRecord := seen.(*v1alpha1.IPAllocation)
		if !isRecord || record.Spec.State != v1alpha1.AllocationRetained || !record.DeletionTimestamp.IsZero() {
			return false
		}
		report.Outcome = "released: its block is retained as ipallocation/" + record.Name
		return true
	})
	switch {
	case errors.Is(err, command.ErrDeleted):
		report.Outcome = gone
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return command.Coded(command.ExitTimedOut, fmt.Errorf("%s %s is deleted, and its block %s is still held after %s%s", report.Object, report.Name, command.OrNone(report.Block), r.wait, report.keeps()))
	case errors.Is(err, command.ErrInterrupted):
		return fmt.Errorf("interrupted: %s %s is deleted, and its block %s was not seen to be free%s", report.Object, report.Name, command.OrNone(report.Block), report.keeps())
	}
	return err
}

// keepingOf returns how long the block of a claim is kept, as far as the caller can read the
// class and the pool.
func (r *Releasing) keepingOf(ctx context.Context, namespace, className string, ref *v1alpha1.PoolReference) ipam.Keeping {
	var class *ipam.Class
	var pool *ipam.Pool
	if obj := (&v1alpha1.IPClass{}); className != "" && r.client.Get(ctx, client.ObjectKey{Name: className}, obj) == nil {
		if read, errs := convert.Class(obj); len(errs) == 0 {
			class = &read
		}
	}
	if ref != nil {
		obj := newPool(namespace, *ref)
		if r.client.Get(ctx, client.ObjectKeyFromObject(obj), obj) == nil {
			if read, errs := convert.Pool(obj); len(errs) == 0 {
				pool = &read
			}
		}
	}
	return ipam.KeepingOf(class, pool)
}

// Afterwards describes how the block of a claim is treated after the release.
func Afterwards(policy v1alpha1.ReclaimPolicy, keeping ipam.Keeping) string {
	switch {
	case policy == v1alpha1.ReclaimRetain && keeping.Retention > 0:
		return fmt.Sprintf("reclaimPolicy Retain: the block stays held for %s, for a claim of the same name", inWords(keeping.Retention))
	case policy == v1alpha1.ReclaimRetain:
		return "reclaimPolicy Retain: the block stays held for a claim of the same name, until its retention period is over"
	case keeping.ReuseDelay > 0:
		return fmt.Sprintf("reclaimPolicy Delete: the block can be handed out again %s after the claim is gone", inWords(keeping.ReuseDelay))
	default:
		return "reclaimPolicy Delete: the block is free again as soon as the claim is gone"
	}
}

// inWords writes a duration without the zeros: 720h and not 720h0m0s.
func inWords(d time.Duration) string {
	text := d.String()
	if minutes, ok := strings.CutSuffix(text, "m0s"); ok {
		text = minutes + "m"
	}
	if hours, ok := strings.CutSuffix(text, "h0m"); ok {
		text = hours + "h"
	}
	return text
}

// releaseTime returns the time at which a record is released, after a preposition; or another text
// if it has none.
func releaseTime(record *v1alpha1.IPAllocation, preposition, otherwise string) string {
	if record.Spec.ReleaseAfter == nil {
		return otherwise
	}
	return " " + preposition + " " + record.Spec.ReleaseAfter.UTC().Format(time.RFC3339)
}

// ReleaseReport represents the output of `release`, and the object to release.
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

	obj client.Object
	age string
	// record is the name of the IPAllocation of the block; empty if none is known.
	record string
	// refusal explains why the object cannot be released; nil if it can.
	refusal error
}

// Names implements command.Report.
func (r *ReleaseReport) Names() []string { return []string{command.NameOf(r.obj)} }

// Table implements command.Report.
func (r *ReleaseReport) Table(bool) *command.Table {
	return command.Line("%s %s", command.NameOf(r.obj), r.Outcome)
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

// find reads the object that an argument names: without a kind, the IPClaim, else the IPAllocation of
// the name.
func (r *Releasing) find(ctx context.Context, argument string) (*ReleaseReport, error) {
	kind, name := command.SplitKind(argument)
	key := metav1.ObjectMeta{Namespace: r.namespace, Name: name}
	claim, record := &v1alpha1.IPClaim{ObjectMeta: key}, &v1alpha1.IPAllocation{ObjectMeta: key}
	var obj client.Object
	switch kind {
	case "ipclaim":
		obj = claim
	case "ipallocation", "ipalloc":
		obj = record
	case "ipaddressclaim":
		obj = &ipamv1.IPAddressClaim{ObjectMeta: key}
	case "":
		for _, obj := range []client.Object{claim, record} {
			err := r.client.Get(ctx, client.ObjectKeyFromObject(obj), obj)
			if err == nil {
				return r.Describe(ctx, obj), nil
			}
			if !apierrors.IsNotFound(err) {
				return nil, err
			}
		}
		return nil, command.Coded(command.ExitNotFound, fmt.Errorf("%s: there is no IPClaim and no IPAllocation of that name in namespace %s: see kubectl get ipclaims,ipallocations -n %[2]s", name, r.namespace))
	default:
		return nil, command.Coded(command.ExitUsage, fmt.Errorf("%s: is neither a claim nor an allocation: write ipclaim/NAME, ipaddressclaim/NAME or ipallocation/NAME", argument))
	}
	if err := command.Get(ctx, r.client, obj); err != nil {
		return nil, err
	}
	return r.Describe(ctx, obj), nil
}

// Describe returns the block of an object, as it is released.
func (r *Releasing) Describe(ctx context.Context, obj client.Object) *ReleaseReport {
	report := &ReleaseReport{
		TypeMeta: command.ReportType("ReleaseReport"), Object: command.KindOf(obj).Kind,
		Namespace: obj.GetNamespace(), Name: obj.GetName(), Since: obj.GetCreationTimestamp(), KeptBy: finalizersOfOthers(obj),
		obj: obj, age: duration.HumanDuration(r.Clock.Since(obj.GetCreationTimestamp().Time)),
	}
	switch obj := obj.(type) {
	case *v1alpha1.IPClaim:
		r.fillClaim(ctx, report, obj)
	case *v1alpha1.IPAllocation:
		report.fillAllocation(obj)
	case *ipamv1.IPAddressClaim:
		r.fillAddressClaim(ctx, report, obj)
	}
	return report
}

func (r *Releasing) fillClaim(ctx context.Context, report *ReleaseReport, claim *v1alpha1.IPClaim) {
	report.Class, report.Block = claim.Spec.ClassName, claim.Status.AllocatedCIDR
	if report.Block == "" {
		report.Afterwards = "nothing is held for it"
		return
	}
	report.record = claim.Spec.AllocationName
	if ref := claim.Status.PoolRef; ref != nil {
		report.Pool = ref.Name
	}
	if network := command.NetworkOf(claim); network != nil && controllerutil.ContainsFinalizer(claim, v1alpha1.FinalizerClusterNetwork) && !r.force {
		report.refusal = command.Coded(command.ExitConflict, fmt.Errorf("IPClaim %s: holds the %s, which keeps it: the block is released when the Cluster is gone, or has another value. With --force the claim is deleted, and stays as long", claim.Name, network))
	}
	keeping := r.keepingOf(ctx, claim.Namespace, claim.Spec.ClassName, claim.Status.PoolRef)
	report.Afterwards = Afterwards(claim.Spec.ReclaimPolicy, keeping)
}

func (r *ReleaseReport) fillAllocation(record *v1alpha1.IPAllocation) {
	r.record, r.Class, r.Block = record.Name, record.Spec.ClassName, record.Spec.CIDR
	if ref := record.Spec.PoolRef; ref != nil {
		r.Pool = ref.Name
	}
	holder := record.Spec.ClaimRef
	switch _, unreadable := convert.Record(record); {
	case unreadable != nil:
		r.Afterwards = fmt.Sprintf("it cannot be understood: %v; once deleted, pools can hand out its block", unreadable)
	case record.Spec.Purpose == v1alpha1.PurposePool:
		r.refusal = command.Coded(command.ExitConflict, fmt.Errorf("IPAllocation %s: is the space of %s %s: delete the pool to release it", record.Name, holder.Kind, holder.Name))
	case record.Spec.State == v1alpha1.AllocationRetained:
		r.Afterwards = fmt.Sprintf("it is retained for a claim of the name %s%s; once deleted, the block is free, after the reuseDelay of its class or pool", holder.Name, releaseTime(record, "until", ""))
	case record.Spec.State == v1alpha1.AllocationCooling:
		r.refusal = command.Coded(command.ExitConflict, fmt.Errorf("IPAllocation %s: is released already, and can be handed out again%s: wait until then", record.Name, releaseTime(record, "after", " soon")))
	default:
		r.refusal = command.Coded(command.ExitConflict, fmt.Errorf("IPAllocation %s: its block is held by %s %s: release that: kubectl ipam release %s/%[3]s%[5]s", record.Name, holder.Kind, holder.Name, strings.ToLower(holder.Kind), command.InNamespace(record)))
	}
}

func (r *Releasing) fillAddressClaim(ctx context.Context, report *ReleaseReport, claim *ipamv1.IPAddressClaim) {
	address := &ipamv1.IPAddress{}
	if name := claim.Status.AddressRef.Name; name != "" && r.client.Get(ctx, client.ObjectKey{Namespace: claim.Namespace, Name: name}, address) == nil {
		report.Block, report.Pool = command.AsBlock(address.Spec.Address), address.Labels[v1alpha1.LabelPool]
		report.record = address.Annotations[v1alpha1.AnnotationAllocation]
		report.Afterwards = "the address is free again as soon as the claim is gone"
	}
	if claim.Spec.PoolRef.Kind == "IPClass" {
		report.Class = claim.Spec.PoolRef.Name
	}
	if owners := claim.OwnerReferences; len(owners) > 0 && !r.force {
		report.refusal = command.Coded(command.ExitConflict, fmt.Errorf("IPAddressClaim %s: belongs to %s %s, which may use the address: delete that, or release the address under it with --force", claim.Name, owners[0].Kind, owners[0].Name))
	}
}
