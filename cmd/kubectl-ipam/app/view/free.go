package view

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
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
		Short: "Show the free blocks of a pool",
		Long: `Show the free blocks of a pool: of each length that it hands out, how many blocks there are,
and which one is the next. With --length, or of a pool of host addresses, the next blocks are
listed in the order in which the pool would hand them out. They are not kept for you: use
kubectl ipam claim for that.

If you may not read the pool, a dry run of a claim shows the next block.
If nothing is free the exit code is 3.`,
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
		e.Note("%s for a block that could be of this pool, and may come first", ipam.FormatNumber(report.Waiting, "claim waits", "claims wait"))
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
			return command.Coded(command.ExitUsage, fmt.Errorf("pool %s has no default length: set --length to the length of the block that you need", pool))
		}
	}
	return err
}

// whyNothing returns the error that explains why a claim of a dry run would get nothing.
func whyNothing(claim *v1alpha1.IPClaim, pool string) error {
	code, message := command.ExitError, "the operator gives no reason"
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

// FreeReport represents the output of `free`.
type FreeReport struct {
	metav1.TypeMeta `json:",inline"`
	Pool            command.ObjectRef `json:"pool"`
	CIDR            string            `json:"cidr,omitempty"`
	// Source is Records, or DryRun for a pool that the caller cannot read.
	Source string `json:"source"`
	// Free is the number of free addresses, a decimal string; empty if it is not known.
	Free string `json:"free,omitempty"`
	// LargestFreePrefix is the prefix length of the largest free block, as in /20.
	LargestFreePrefix string `json:"largestFreePrefix,omitempty"`
	// Lengths holds the lengths that the pool hands out and has free, unless the caller asks
	// for one length. For an IPv6 pool it holds the multiples of 4, the shortest and the longest.
	Lengths []FreeLength `json:"lengths,omitempty"`
	// Blocks holds the next blocks of the requested length, in the order in which the pool
	// would hand them out, or in address order for a pool that chooses at random.
	Blocks []string `json:"blocks,omitempty"`
	// Available is the number of free blocks of that length, a decimal string.
	Available string `json:"available,omitempty"`
	// Waiting is the number of claims that wait for a block that could be of this pool.
	Waiting int `json:"waiting"`

	name string
}

// FreeLength represents the free blocks of a length, counted as if only blocks of this length
// are taken.
type FreeLength struct {
	PrefixLength int `json:"prefixLength"`
	// Blocks is the number of these blocks, a decimal string.
	Blocks string `json:"blocks"`
	// Next is the block that the pool would hand out.
	Next string `json:"next"`
}

// parse checks the flags, and sets Length if a length is given.
func (o *FreeOptions) parse(length string) error {
	if o.Count < 1 {
		return fmt.Errorf("--count=%d: must be 1 or more", o.Count)
	}
	if length == "" {
		return nil
	}
	bits, err := strconv.Atoi(strings.TrimPrefix(length, "/"))
	if err != nil || bits < 0 || bits > ipam.IPv6.Bits() {
		return fmt.Errorf("--length=%s: is not a prefix length: write a number such as 24", length)
	}
	o.Length = bits
	return nil
}

// NewFreeReport finds the free blocks of a pool that the caller can read. If there are none, the
// error gives the reason and has its exit code.
func NewFreeReport(pool *register.Pool, options FreeOptions) (*FreeReport, error) {
	name := pool.Key.Name
	if !pool.CIDR.IsValid() {
		return nil, command.Coded(command.ExitExhausted, fmt.Errorf("pool %s has no CIDR yet: it waits for a block of %s", name, pool.Home))
	}
	length := options.Length
	if length == ipam.NoLength && pool.Network != nil {
		length = pool.Family.Bits()
	}
	if length != ipam.NoLength && !pool.Lengths.Contain(length) {
		return nil, command.Coded(command.ExitUsage, fmt.Errorf("--length=%d: pool %s (%s) hands out /%d to /%d: ask for one of these", length, name, pool.CIDR, pool.Lengths.Min, pool.Lengths.Max))
	}
	s := pool.Space()
	largest, ok := s.LargestFree()
	switch {
	case !ok:
		return nil, command.Coded(command.ExitExhausted, fmt.Errorf("pool %s has no free block: release one, or use another pool", name))
	case largest > pool.Lengths.Max:
		return nil, command.Coded(command.ExitExhausted, fmt.Errorf("pool %s has no free block of a length that it hands out (/%d to /%d): its largest is a /%d", name, pool.Lengths.Min, pool.Lengths.Max, largest))
	}
	report := &FreeReport{
		TypeMeta: command.ReportType("FreeReport"), Pool: command.RefOfPool(pool.Key), CIDR: pool.CIDR.String(), Source: sourceRecords,
		Free: s.Free().String(), LargestFreePrefix: fmt.Sprintf("/%d", largest), Waiting: len(pool.Waiting), name: name,
	}
	if length == ipam.NoLength {
		report.addLengths(pool, s, largest)
		return report, nil
	}
	if largest > length {
		return nil, command.Coded(command.ExitExhausted, fmt.Errorf("pool %s has no free /%d: its largest free block is a /%d: ask for that, or for less", name, length, largest))
	}
	report.Available = s.FreeBlocks(length).String()
	for range options.Count {
		block, ok := s.Find(fitOf(pool.Strategy), length)
		if !ok {
			break
		}
		s.Use(block)
		report.Blocks = append(report.Blocks, block.String())
	}
	return report, nil
}

// addLengths adds the lengths that the pool hands out and has free.
func (r *FreeReport) addLengths(pool *register.Pool, s *space.Space, largest int) {
	shortest := max(largest, pool.Lengths.Min)
	for bits := shortest; bits <= pool.Lengths.Max; bits++ {
		if pool.Family == ipam.IPv6 && bits%4 != 0 && bits != shortest && bits != pool.Lengths.Max {
			continue
		}
		if found, ok := s.Find(fitOf(pool.Strategy), bits); ok {
			r.Lengths = append(r.Lengths, FreeLength{PrefixLength: bits, Blocks: s.FreeBlocks(bits).String(), Next: found.String()})
		}
	}
}

// fitOf returns the fit by which a strategy chooses; for a strategy that chooses at random, the
// fit that finds the lowest block.
func fitOf(strategy ipam.Strategy) space.Fit {
	switch strategy {
	case ipam.StrategyBestFit:
		return space.BestFit
	case ipam.StrategyWorstFit:
		return space.WorstFit
	default:
		return space.FirstFit
	}
}

// Names implements command.Report.
func (r *FreeReport) Names() []string {
	return []string{strings.ToLower(r.Pool.Kind) + "/" + r.Pool.Name}
}

// Table implements command.Report.
func (r *FreeReport) Table(bool) *command.Table {
	if len(r.Lengths) > 0 {
		t := &command.Table{Headers: []string{"LENGTH", "FREE BLOCKS", "NEXT"}}
		for _, length := range r.Lengths {
			t.Add(command.Text("/%d", length.PrefixLength), number(length.Blocks), command.Text("%s", length.Next))
		}
		return t
	}
	t := &command.Table{Headers: []string{"FREE BLOCK"}}
	for _, block := range r.Blocks {
		t.Add(command.Text("%s", block))
	}
	if total, ok := space.ParseCount(r.Available); ok && total != space.CountOf64(uint64(len(r.Blocks))) {
		t.Footer = fmt.Sprintf("Of this length %s are free in all.", command.Readable(total))
	}
	return t
}
