package view

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// FreeOptions holds the flags of `free`.
type FreeOptions struct {
	// Length is ipam.NoLength if it is not given.
	Length, Count int
}

// NewFree returns the command free.
func NewFree(e *command.Env) *cobra.Command {
	options := FreeOptions{Length: ipam.NoLength, Count: 1}
	var length string
	cmd := &cobra.Command{
		Use:   "free POOL",
		Short: "Show what a pool has free",
		Long: `Show what a pool has free: of each length that it hands out, how many blocks there are, and
which one is the next. With --length, or of a pool of host addresses, the next blocks are
listed in the order in which the pool would hand them out. They are not kept for you: use
kubectl ipam claim for that.

A pool that you may not read is asked in a dry run what a claim would get.
Where nothing is free the exit code is 3.`,
		Example: `  # How many blocks of each length are free?
  kubectl ipam free west

  # The next five networks of length 24
  kubectl ipam free west --length 24 -c 5`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: e.First(&v1alpha1.IPPoolList{}, &v1alpha1.LocalIPPoolList{}),
	}
	o := command.BindOutput(cmd)
	cmd.Flags().StringVar(&length, "length", "", "prefix length of the blocks, such as 24 or /24; default: one address in a pool of host addresses, else all lengths")
	cmd.Flags().IntVarP(&options.Count, "count", "c", options.Count, "how many of the next blocks to list")
	command.CompleteWith(cmd, "length", completeLengths(e))
	command.CompleteWith(cmd, "count", cobra.NoFileCompletions)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := options.parse(length); err != nil {
			return command.Coded(command.ExitUsage, err)
		}
		r, err := e.ReadScope(cmd, register.OfPool(args[0]))
		if err != nil {
			return err
		}
		pool, err := findPool(e, r, args[0])
		switch {
		case err != nil && r.Lacks("ippools"), err == nil && !pool.IsKnown():
			return freeByDryRun(e, cmd, o, args[0], options)
		case err != nil:
			return err
		}
		return free(e, o, pool, options)
	}
	return cmd
}

// free prints the free blocks of a pool.
func free(e *command.Env, o *command.Output, pool *register.Pool, options FreeOptions) error {
	report, err := NewFreeReport(pool, options)
	if err != nil {
		return err
	}
	if pool.Strategy == ipam.StrategyRandom {
		e.Note("pool %s chooses at random: blocks are listed in address order", pool.Key.Name)
	}
	if phase := phaseOf(pool); phase != v1alpha1.PoolReady && phase != v1alpha1.PoolExhausted {
		e.Note("pool %s is %s: it hands out nothing", pool.Key.Name, phase)
	}
	if report.Waiting > 0 {
		e.Note("%s for a block that could be of this pool, and may come first", ipam.Numbered(report.Waiting, "claim waits", "claims wait"))
	}
	return e.Print(o, report)
}

// freeByDryRun prints the block that a claim that names the pool would get.
func freeByDryRun(e *command.Env, cmd *cobra.Command, o *command.Output, name string, options FreeOptions) error {
	c, err := e.Client()
	if err != nil {
		return err
	}
	namespace, err := e.Namespace()
	if err != nil {
		return err
	}
	if options.Count > 1 {
		e.Note("only the next block is known, as you may not list ippools")
	}
	report, err := DryRunReport(cmd.Context(), c, namespace, ipam.PoolNamed(name), options)
	if err != nil {
		return err
	}
	return e.Print(o, report)
}

// DryRunReport returns the report of the block that a claim of a namespace that names the pool
// would get.
func DryRunReport(ctx context.Context, c client.Client, namespace string, pool ipam.PoolKey, options FreeOptions) (*FreeReport, error) {
	claim := probeOfPool(pool, options.Length)
	claim.Namespace = namespace
	answer, err := probe(ctx, c, claim)
	if err != nil {
		return nil, probeError(err, pool.Name, options)
	}
	report := &FreeReport{TypeMeta: command.ReportType("FreeReport"), Pool: command.RefOfPool(pool), Source: sourceDryRun, name: pool.Name}
	for _, candidate := range candidatesOf(answer) {
		if candidate.pool == pool {
			report.Free, report.LargestFreePrefix = candidate.available, candidate.largestFreePrefix
		}
	}
	if answer.Status.AllocatedCIDR == "" {
		return nil, whyNothing(answer, pool.Name)
	}
	report.Blocks = []string{answer.Status.AllocatedCIDR}
	return report, nil
}

// probeError returns the error that explains why the claim of a dry run is refused.
func probeError(err error, pool string, options FreeOptions) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return err
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Field == "spec.prefixLength" && options.Length == ipam.NoLength {
			return command.Coded(command.ExitUsage, fmt.Errorf("pool %s has no default length: say with --length how large a block you need", pool))
		}
	}
	return err
}

// whyNothing returns the error that explains why a claim of a dry run would get nothing.
func whyNothing(claim *v1alpha1.IPClaim, pool string) error {
	code, message := command.ExitError, "the operator does not say why"
	if ready := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		message = ready.Message
		if ready.Reason == v1alpha1.ReasonPoolNotFound {
			code = command.ExitNotFound
		}
	}
	if claim.Status.Phase == v1alpha1.ClaimExhausted {
		code = command.ExitExhausted
	}
	return command.Coded(code, fmt.Errorf("pool %s: a claim would get nothing: %s", pool, message))
}

// completeLengths offers the lengths that the pool hands out.
func completeLengths(e *command.Env) command.Completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		r, err := e.ReadQuietly(cmd, register.OfPool(args[0]))
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		pool, err := findPool(e, r, args[0])
		if err != nil || !pool.IsKnown() || !pool.CIDR.IsValid() {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var lengths []string
		for bits := pool.Lengths.Min; bits <= pool.Lengths.Max; bits++ {
			lengths = append(lengths, fmt.Sprint(bits))
		}
		return lengths, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}
