package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

func newRelease(e *env) *cobra.Command {
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
		ValidArgsFunction: e.first(&v1alpha1.IPClaimList{}),
	}
	r := &releasing{env: e, dryRun: bindDryRun(cmd), wait: bindWait(cmd, "the block is free, or is retained"), output: bindOutput(cmd)}
	cmd.Flags().BoolVarP(&r.yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&r.force, "force", false, "release an IPAddressClaim that another object owns and uses")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := r.dryRun.check(); err != nil {
			return err
		}
		return r.run(cmd.Context(), args[0])
	}
	return cmd
}

// releasing is one run of the command.
type releasing struct {
	*env
	dryRun     *dryRun
	wait       *waiting
	output     *output
	yes, force bool

	client client.WithWatch
}

func (r *releasing) run(ctx context.Context, argument string) error {
	k8s, err := r.env.client()
	if err != nil {
		return err
	}
	r.client = k8s
	namespace, err := r.namespace()
	if err != nil {
		return err
	}
	held, err := r.find(ctx, namespace, argument)
	if err != nil {
		return err
	}
	if format := *r.output.flags.OutputFormat; format == "" || format == "wide" {
		held.report.describe(r.Out)
	}
	if held.refusal != nil {
		return held.refusal
	}
	if *r.dryRun == dryRunNone {
		if err := r.confirmed(ctx, r.yes, "Release it?"); err != nil {
			return err
		}
	}
	if err := r.delete(ctx, held); err != nil {
		return err
	}
	if *r.dryRun == dryRunNone && r.wait.atMost > 0 {
		if err := r.await(ctx, held); err != nil {
			return err
		}
	}
	return r.print(r.output, held.report)
}

// delete deletes what was described, and no later object of its name.
func (r *releasing) delete(ctx context.Context, held *holding) error {
	held.report.Outcome = r.dryRun.done("released")
	if *r.dryRun == dryRunClient {
		return nil
	}
	uid := held.obj.GetUID()
	return r.client.Delete(ctx, held.obj, client.Preconditions{UID: &uid}, r.dryRun)
}

// await watches the record of the block until that is free, or retained. Where none is known,
// the claim is watched until it is gone.
func (r *releasing) await(ctx context.Context, held *holding) error {
	report := held.report
	var err error
	if held.record == "" {
		watched := &awaited[client.Object]{
			client: r.client, named: held.obj, list: held.list,
			until: func(client.Object) (bool, error) { return false, nil },
			gone:  func() error { report.Outcome = "released, and gone"; return nil },
		}
		err = watched.wait(ctx, r.wait.atMost)
	} else {
		err = r.recordOf(held).wait(ctx, r.wait.atMost)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return coded(ExitTimedOut, fmt.Errorf("%s %s is deleted, and its block %s is still held after %s%s", report.Object, report.Name, orNone(report.Block), r.wait.atMost, report.keeps()))
	case errors.Is(err, errInterrupted):
		return fmt.Errorf("interrupted: %s %s is deleted, and its block %s was not seen to be free%s", report.Object, report.Name, orNone(report.Block), report.keeps())
	}
	return err
}

func (r *releasing) recordOf(held *holding) *awaited[*v1alpha1.IPAllocation] {
	record := &v1alpha1.IPAllocation{}
	record.Namespace, record.Name = held.obj.GetNamespace(), held.record
	return &awaited[*v1alpha1.IPAllocation]{
		client: r.client, named: record, list: &v1alpha1.IPAllocationList{},
		until: func(seen *v1alpha1.IPAllocation) (bool, error) {
			retained := seen.Spec.State == v1alpha1.AllocationRetained && seen.DeletionTimestamp.IsZero()
			if retained {
				held.report.Outcome = "released: its block is retained as ipallocation/" + seen.Name
			}
			return retained, nil
		},
		gone: func() error { held.report.Outcome = "released: its block is free"; return nil },
	}
}
