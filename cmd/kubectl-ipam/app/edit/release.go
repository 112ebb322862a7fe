package edit

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
)

// NewRelease returns the command release.
func NewRelease(e *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "release CLAIM|ALLOCATION",
		Short: "Give a block back: delete its claim, or the allocation of a retained one",
		Long: `Give a block back: delete its claim, or, where its claim is gone and the block is retained,
its allocation; or an allocation that cannot be read, whose block no pool hands out. It says first what is held and what becomes of the block, and asks; with
--yes it does not ask. NAME alone is an IPClaim of the namespace, else an IPAllocation;
ipclaim/NAME, ipallocation/NAME and ipaddressclaim/NAME say which.`,
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
