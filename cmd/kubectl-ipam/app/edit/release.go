package edit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	r := &Releasing{Env: e, DryRun: command.BindDryRun(cmd), wait: command.BindWait(cmd, "the block is free, or is retained"), output: command.BindOutput(cmd)}
	cmd.Flags().BoolVarP(&r.yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&r.force, "force", false, "release an IPAddressClaim that another object owns and uses")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := r.DryRun.Check(); err != nil {
			return err
		}
		return r.run(cmd.Context(), args[0])
	}
	return cmd
}

// Releasing represents one run of the command.
type Releasing struct {
	*command.Env
	DryRun     *command.DryRun
	wait       *command.Waiting
	output     *command.Output
	yes, force bool

	Client client.WithWatch
}

func (r *Releasing) run(ctx context.Context, argument string) error {
	k8s, err := r.Env.Client()
	if err != nil {
		return err
	}
	r.Client = k8s
	namespace, err := r.Namespace()
	if err != nil {
		return err
	}
	held, err := r.find(ctx, namespace, argument)
	if err != nil {
		return err
	}
	if format := *r.output.Flags.OutputFormat; format == "" || format == "wide" {
		held.Report.describe(r.Out)
	}
	if held.refusal != nil {
		return held.refusal
	}
	if *r.DryRun == command.DryRunNone {
		if err := r.Confirmed(ctx, r.yes, "Release it?"); err != nil {
			return err
		}
	}
	if err := r.Delete(ctx, held); err != nil {
		return err
	}
	if *r.DryRun == command.DryRunNone && r.wait.AtMost > 0 {
		if err := r.await(ctx, held); err != nil {
			return err
		}
	}
	return r.Print(r.output, held.Report)
}

// Delete deletes the described object, and no later object of its name.
func (r *Releasing) Delete(ctx context.Context, held *Holding) error {
	held.Report.Outcome = r.DryRun.Done("released")
	if *r.DryRun == command.DryRunClient {
		return nil
	}
	uid := held.obj.GetUID()
	return r.Client.Delete(ctx, held.obj, client.Preconditions{UID: &uid}, r.DryRun)
}

// await watches the record of the block until the block is free, or retained. If no record is
// known, it watches the claim until the claim is gone.
func (r *Releasing) await(ctx context.Context, held *Holding) error {
	report := held.Report
	var err error
	if held.record == "" {
		watched := &command.Awaited[client.Object]{
			Client: r.Client, Named: held.obj, List: held.list,
			Until: func(client.Object) (bool, error) { return false, nil },
			Gone:  func() error { report.Outcome = "released, and gone"; return nil },
		}
		err = watched.Wait(ctx, r.wait.AtMost)
	} else {
		err = r.recordOf(held).Wait(ctx, r.wait.AtMost)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return command.Coded(command.ExitTimedOut, fmt.Errorf("%s %s is deleted, and its block %s is still held after %s%s", report.Object, report.Name, command.OrNone(report.Block), r.wait.AtMost, report.keeps()))
	case errors.Is(err, command.ErrInterrupted):
		return fmt.Errorf("interrupted: %s %s is deleted, and its block %s was not seen to be free%s", report.Object, report.Name, command.OrNone(report.Block), report.keeps())
	}
	return err
}

func (r *Releasing) recordOf(held *Holding) *command.Awaited[*v1alpha1.IPAllocation] {
	record := &v1alpha1.IPAllocation{}
	record.Namespace, record.Name = held.obj.GetNamespace(), held.record
	return &command.Awaited[*v1alpha1.IPAllocation]{
		Client: r.Client, Named: record, List: &v1alpha1.IPAllocationList{},
		Until: func(seen *v1alpha1.IPAllocation) (bool, error) {
			retained := seen.Spec.State == v1alpha1.AllocationRetained && seen.DeletionTimestamp.IsZero()
			if retained {
				held.Report.Outcome = "released: its block is retained as ipallocation/" + seen.Name
			}
			return retained, nil
		},
		Gone: func() error { held.Report.Outcome = "released: its block is free"; return nil },
	}
}

// keepingOf returns how long the block of a claim is kept, as far as the caller can read the
// class and the pool.
func (r *Releasing) keepingOf(ctx context.Context, namespace, className string, ref *v1alpha1.PoolReference) ipam.Keeping {
	var class *ipam.Class
	var pool *ipam.Pool
	if obj := (&v1alpha1.IPClass{}); className != "" && r.Client.Get(ctx, client.ObjectKey{Name: className}, obj) == nil {
		if read, errs := convert.Class(obj); len(errs) == 0 {
			class = &read
		}
	}
	if ref != nil {
		obj := v1alpha1.NewPool(ref.Kind)
		key := client.ObjectKey{Name: ref.Name}
		if ref.Kind == v1alpha1.PoolKindLocalIPPool {
			key.Namespace = namespace
		}
		if r.Client.Get(ctx, key, obj) == nil {
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
	text := strings.TrimSuffix(d.String(), "0s")
	if trimmed, ok := strings.CutSuffix(text, "h0m"); ok {
		return trimmed + "h"
	}
	if text == "" || !strings.HasSuffix(text, "m") {
		return d.String()
	}
	return text
}

func until(record *v1alpha1.IPAllocation) string {
	if record.Spec.ReleaseAfter == nil {
		return ""
	}
	return " until " + record.Spec.ReleaseAfter.UTC().Format(time.RFC3339)
}

func after(record *v1alpha1.IPAllocation) string {
	if record.Spec.ReleaseAfter == nil {
		return " soon"
	}
	return " after " + record.Spec.ReleaseAfter.UTC().Format(time.RFC3339)
}

func lower(kind string) string { return strings.ToLower(kind) }
