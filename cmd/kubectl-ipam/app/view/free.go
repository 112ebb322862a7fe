package view

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	"github.com/cadastre-dev/cadastre/internal/convert"
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
		ValidArgsFunction: e.FirstPool(),
	}
	cmd.Flags().StringVar(&length, "length", "", "prefix length of the blocks, such as 24 or /24; default: one address in a pool of host addresses, else all lengths")
	cmd.Flags().IntVarP(&options.Count, "count", "c", options.Count, "how many of the next blocks to list")
	command.CompleteWith(cmd, "length", completeLengths(e))
	command.CompleteWith(cmd, "count", cobra.NoFileCompletions)
	e.RunReport(cmd, func(cmd *cobra.Command, args []string) (command.Report, error) {
		if err := options.parse(length); err != nil {
			return nil, command.Coded(command.ExitUsage, err)
		}
		return free(e, cmd, args[0], options)
	})
	return cmd
}

// free returns the free blocks of a pool; of a pool that the caller cannot read, the block that a
// claim that names it would get.
func free(e *command.Env, cmd *cobra.Command, name string, options FreeOptions) (*FreeReport, error) {
	r, err := e.ReadScope(cmd, scopeOf(name))
	if err != nil {
		return nil, err
	}
	pool, err := findPool(e, r, name)
	switch {
	case command.CodeOf(err) == command.ExitNotFound && r.Lacks("ippools"), err == nil && !pool.IsKnown():
		c, namespace, err := e.ClientAndNamespace()
		if err != nil {
			return nil, err
		}
		ref, err := command.PoolOf(name)
		if err != nil {
			return nil, err
		}
		if options.Count > 1 {
			e.Note("only the next block is known, as you may not list ippools")
		}
		return DryRunReport(cmd.Context(), c, namespace, convert.PoolKey(namespace, ref), options)
	case err != nil:
		return nil, err
	}
	report, err := NewFreeReport(pool, options)
	if err != nil {
		return nil, err
	}
	if pool.Strategy == ipam.StrategyRandom {
		e.Note("pool %s chooses at random: blocks are listed in address order", name)
	}
	if phase := idlePhase(pool); phase != "" {
		e.Note("pool %s is %s: it hands out nothing", name, phase)
	}
	if report.Waiting > 0 {
		e.Note("%s for a block that could be of this pool, and may come first", ipam.FormatNumber(report.Waiting, "claim waits", "claims wait"))
	}
	return report, nil
}

// completeLengths offers the lengths that the pool hands out.
func completeLengths(e *command.Env) cobra.CompletionFunc {
	return completeOfPool(e, func(pool *register.Pool) (lengths []string) {
		if !pool.IsKnown() || !pool.CIDR.IsValid() {
			return nil
		}
		for bits := pool.Lengths.Min; bits <= pool.Lengths.Max; bits++ {
			lengths = append(lengths, fmt.Sprint(bits))
		}
		return lengths
	})
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
		Free: s.Free().String(), LargestFreePrefix: fmt.Sprintf("/%d", largest), Waiting: len(pool.Waiting),
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
	fits := map[ipam.Strategy]space.Fit{ipam.StrategyBestFit: space.BestFit, ipam.StrategyWorstFit: space.WorstFit}
	return fits[strategy] // otherwise the zero value, space.FirstFit
}

// Names implements command.Report.
func (r *FreeReport) Names() []string { return []string{r.Pool.Argument()} }

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

// mostProbes limits the claims that one command tries in dry runs.
const mostProbes = 20

// candidatesOf returns the pools that the answer to a dry run names as candidates, else the pool
// from which the block would come.
func candidatesOf(claim *v1alpha1.IPClaim) map[ipam.PoolKey]v1alpha1.CandidatePool {
	all := map[ipam.PoolKey]v1alpha1.CandidatePool{}
	for _, entry := range claim.Status.Candidates {
		all[convert.PoolKey(claim.Namespace, entry.PoolRef)] = entry
	}
	if len(all) == 0 && claim.Status.PoolRef != nil {
		all[convert.PoolKey(claim.Namespace, *claim.Status.PoolRef)] = v1alpha1.CandidatePool{}
	}
	return all
}

// candidatesFor asks for the blocks that claims of the namespace could get from pools that the
// caller cannot list: by each class, and from each pool of which the namespace has a block.
func candidatesFor(e *command.Env, cmd *cobra.Command, r *register.Register) map[ipam.PoolKey]v1alpha1.CandidatePool {
	candidates := map[ipam.PoolKey]v1alpha1.CandidatePool{}
	if !r.Lacks("ippools") {
		return candidates
	}
	c, namespace, err := e.ClientAndNamespace()
	if err != nil {
		return candidates
	}
	for i, claim := range probes(cmd.Context(), c, namespace, r) {
		if i == mostProbes {
			e.Note("free blocks of further pools were not asked for: name a pool to ask for it alone")
			break
		}
		err := c.Create(cmd.Context(), claim, client.DryRunAll)
		switch code := command.CodeOf(err); {
		case err == nil:
			maps.Copy(candidates, candidatesOf(claim))
		case code == command.ExitUsage, code == command.ExitExhausted: // the claim is not allowed, and the answer names no pools
		case apierrors.IsForbidden(err):
			e.Note("you may not create ipclaims in namespace %s, so the free blocks of pools that you may not list are not known", namespace)
			return candidates
		default:
			e.Note("the free blocks of pools that you may not list are not known: %v", err)
			return candidates
		}
	}
	return candidates
}

// probes returns claims that lead to all pools that a namespace can use, as far as is known: for
// the default block of each class, else the smallest that it allows, and for a block of each pool.
func probes(ctx context.Context, c client.Client, namespace string, r *register.Register) []*v1alpha1.IPClaim {
	var claims []*v1alpha1.IPClaim
	classes := &v1alpha1.IPClassList{}
	if err := c.List(ctx, classes); err == nil { // a caller that cannot list them has none to ask for
		for i := range classes.Items {
			claims = append(claims, classProbe(namespace, &classes.Items[i]))
		}
	}
	for _, pool := range r.Pools {
		if !pool.IsKnown() && len(pool.Records) > 0 {
			spec := v1alpha1.IPClaimSpec{PoolRef: convert.PoolReference(pool.Key)}
			claims = append(claims, newProbe(namespace, pool.Records[0].Block.Bits(), spec))
		}
	}
	return claims
}

// classProbe returns a probe for the default block of a class, else the smallest that it allows.
func classProbe(namespace string, class *v1alpha1.IPClass) *v1alpha1.IPClaim {
	length := ipam.NoLength
	if read, errs := convert.Class(class); len(errs) == 0 && read.Length == ipam.NoLength && class.UID != "" {
		length = min(read.Lengths.Max, read.Family.Bits())
	}
	return newProbe(namespace, length, v1alpha1.IPClaimSpec{ClassName: class.Name})
}

// newProbe returns a claim to create in a dry run, which records nothing. The API server answers
// with the block that the claim would get: the default block if no length is given.
func newProbe(namespace string, length int, spec v1alpha1.IPClaimSpec) *v1alpha1.IPClaim {
	if length != ipam.NoLength {
		spec.PrefixLength = new(int32(length)) //nolint:gosec // at most 128
	}
	return &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "kubectl-ipam-"}, Spec: spec}
}

// DryRunReport returns the report of the block that a claim of a namespace that names the pool
// would get.
func DryRunReport(ctx context.Context, c client.Client, namespace string, pool ipam.PoolKey, options FreeOptions) (*FreeReport, error) {
	claim := newProbe(namespace, options.Length, v1alpha1.IPClaimSpec{PoolRef: convert.PoolReference(pool)})
	if err := c.Create(ctx, claim, client.DryRunAll); err != nil {
		return nil, probeError(err, pool.Name, options)
	}
	if claim.Status.AllocatedCIDR == "" {
		return nil, whyNothing(claim, pool.Name)
	}
	entry := candidatesOf(claim)[pool]
	return &FreeReport{
		TypeMeta: command.ReportType("FreeReport"), Pool: command.RefOfPool(pool), Source: sourceDryRun,
		Free: entry.Available, LargestFreePrefix: entry.LargestFreePrefix, Blocks: []string{claim.Status.AllocatedCIDR},
	}, nil
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
