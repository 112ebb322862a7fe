package edit

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
)

// NewClaim returns the command claim.
func NewClaim(e *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "claim",
		Short: "Ask for a block of addresses, and print it",
		Long: `Ask for a block of addresses, and print it. The block is held for an IPClaim that is
made in the namespace, from a class, a pool, or the default class if neither is named. To
give it back, release the claim.

If there is no room the claim is stored and waits; the exit code shows it. It is safe to run
the same command again with --name: the same request gets the same claim.`,
		Example: `  # A block of the default class, for a script
  kubectl ipam claim --name web -q

  # A /28 of one pool, waiting for room for ten minutes at most
  kubectl ipam claim --pool vips --length 28 --wait=10m

  # Which block would it be?
  kubectl ipam claim --class subnets --dry-run

  # The manifest
  kubectl ipam claim --class subnets --name web --dry-run=client -o yaml`,
		Args: cobra.NoArgs,
	}
	asked := &claimFlags{}
	asked.bind(e, cmd)
	c := &claiming{Env: e, asked: asked, dryRun: command.BindDryRun(cmd), wait: command.BindWait(cmd, "the claim has its block"), output: command.BindOutput(cmd)}
	cmd.Flags().BoolVarP(&c.quiet, "quiet", "q", false, "print the block alone")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := c.check(cmd); err != nil {
			return err
		}
		return c.run(cmd.Context())
	}
	return cmd
}

// claiming represents one run of the command.
type claiming struct {
	*command.Env
	asked  *claimFlags
	dryRun *command.DryRun
	wait   *command.Waiting
	output *command.Output
	quiet  bool

	client client.WithWatch
}

func (c *claiming) check(cmd *cobra.Command) error {
	if err := c.dryRun.Check(); err != nil {
		return err
	}
	if c.quiet && cmd.Flags().Changed("output") {
		return command.Coded(command.ExitUsage, fmt.Errorf("--quiet and --output exclude each other: leave one out"))
	}
	return c.asked.check()
}

func (c *claiming) run(ctx context.Context) error {
	k8s, err := c.Env.Client()
	if err != nil {
		return err
	}
	c.client = k8s
	namespace, err := c.Namespace()
	if err != nil {
		return err
	}
	claim, err := c.asked.claim(ctx, k8s, namespace)
	if err != nil {
		return err
	}
	if *c.dryRun == command.DryRunClient {
		return c.show(claim)
	}
	if claim, err = c.create(ctx, claim); err != nil {
		return err
	}
	if !isBound(claim) && *c.dryRun == command.DryRunNone && c.wait.AtMost > 0 {
		if claim, err = c.await(ctx, claim); err != nil {
			return err
		}
	}
	if isBound(claim) || !c.quiet {
		if err := c.show(claim); err != nil {
			return err
		}
	}
	return c.waits(claim)
}

// create creates the claim, or returns the stored one if that asked for the same.
func (c *claiming) create(ctx context.Context, claim *v1alpha1.IPClaim) (*v1alpha1.IPClaim, error) {
	made := claim.DeepCopy()
	err := c.client.Create(ctx, made, c.dryRun)
	switch {
	case err == nil:
		return made, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("interrupted while the claim was created: it may have been stored: see kubectl get ipclaim%s", command.InNamespace(claim))
	case !apierrors.IsAlreadyExists(err) || claim.Name == "":
		return nil, err
	}
	stored := &v1alpha1.IPClaim{}
	stored.Namespace, stored.Name = claim.Namespace, claim.Name
	if err := command.Get(ctx, c.client, stored); err != nil {
		return nil, err
	}
	return stored, sameRequest(claim, stored)
}

// show prints a claim: its block alone, or the claim in the requested format.
func (c *claiming) show(claim *v1alpha1.IPClaim) error {
	if c.quiet && *c.dryRun != command.DryRunClient {
		fmt.Fprintln(c.Out, claim.Status.AllocatedCIDR)
		return nil
	}
	printed, err := command.NewObject(claim, func(wide bool) *command.Table { return claimTable(claim, wide) })
	if err != nil {
		return err
	}
	if *c.dryRun == command.DryRunClient {
		printed.AsManifest = true
		printed.Rows = func(bool) *command.Table {
			return &command.Table{Rows: [][]command.Cell{{command.Text("%s %s", printed.Names()[0], c.dryRun.Done("created"))}}}
		}
	}
	return c.Print(c.output, printed)
}

func claimTable(claim *v1alpha1.IPClaim, wide bool) *command.Table {
	t := &command.Table{Headers: []string{"CLAIM", "BLOCK", "POOL", "CLASS", "PHASE"}}
	pool := ""
	if ref := claim.Status.PoolRef; ref != nil {
		pool = ref.Name
	}
	cells := []command.Cell{
		command.Text("%s", claim.Name), {Text: command.OrNone(claim.Status.AllocatedCIDR), Style: command.Strong}, command.Text("%s", command.OrNone(pool)),
		command.Text("%s", command.OrNone(claim.Spec.ClassName)), command.Text("%s", command.OrNone(string(claim.Status.Phase))),
	}
	if wide {
		t.Headers = append(t.Headers, "GATEWAY", "RECLAIM", "ALLOCATION")
		gateway := ""
		if network := claim.Status.Network; network != nil {
			gateway = network.Gateway
		}
		cells = append(cells, command.Text("%s", command.OrNone(gateway)), command.Text("%s", command.OrNone(string(claim.Spec.ReclaimPolicy))), command.Text("%s", command.OrNone(claim.Spec.AllocationName)))
	}
	t.Add(cells...)
	return t
}

// claimFlags holds the flags of the request of a claim.
type claimFlags struct {
	name, class, pool, selector, family, cidr, reclaim string

	length *int32
}

func (f *claimFlags) bind(e *command.Env, cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.name, "name", "", "name of the claim; without one the API server makes one up")
	flags.StringVar(&f.class, "class", "", "class that serves the claim")
	flags.StringVar(&f.pool, "pool", "", "pool that serves the claim: a LocalIPPool of the namespace, else an IPPool; or localippool/NAME, ippool/NAME")
	flags.StringVarP(&f.selector, "selector", "l", "", "labels of the pools that may serve the claim, such as site=a")
	flags.Var(command.Length{Bits: &f.length}, "length", "size of the block: 24 for a /24 (default: that of the class or the pool)")
	flags.StringVar(&f.cidr, "cidr", "", "ask for exactly this block, or this address")
	flags.StringVar(&f.family, "family", "", "address family: IPv4 or IPv6 (default: that of the class or the pool)")
	flags.StringVar(&f.reclaim, "reclaim-policy", "", "what becomes of the block when the claim is released: Delete or Retain (default: that of the class)")
	command.Complete(cmd, "family", command.Families()...)
	command.Complete(cmd, "reclaim-policy", string(v1alpha1.ReclaimDelete), string(v1alpha1.ReclaimRetain))
	command.CompleteWith(cmd, "class", e.CompleteNames(&v1alpha1.IPClassList{}))
	command.CompleteWith(cmd, "pool", e.CompleteNames(&v1alpha1.LocalIPPoolList{}, &v1alpha1.IPPoolList{}))
}

func (f *claimFlags) check() error {
	named := 0
	for _, from := range []string{f.class, f.pool, f.selector} {
		if from != "" {
			named++
		}
	}
	if named > 1 {
		return command.Coded(command.ExitUsage, fmt.Errorf("--class, --pool and --selector exclude each other: keep one of them"))
	}
	return nil
}

// claim returns the claim that the flags describe.
func (f *claimFlags) claim(ctx context.Context, c client.Client, namespace string) (*v1alpha1.IPClaim, error) {
	claim := &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: f.name}}
	if f.name == "" {
		claim.GenerateName = "claim-"
	}
	claim.Spec = v1alpha1.IPClaimSpec{
		ClassName: f.class, IPFamily: v1alpha1.IPFamily(f.family), PrefixLength: f.length,
		CIDR: command.AsBlock(f.cidr), ReclaimPolicy: v1alpha1.ReclaimPolicy(f.reclaim),
	}
	if f.pool != "" {
		ref, err := command.PoolNamed(ctx, c, namespace, f.pool)
		if err != nil {
			return nil, err
		}
		claim.Spec.PoolRef = &ref
	}
	if f.selector != "" {
		selector, err := metav1.ParseToLabelSelector(f.selector)
		if err != nil {
			return nil, command.Coded(command.ExitUsage, fmt.Errorf("--selector=%s: %w: write one such as site=a", f.selector, err))
		}
		claim.Spec.PoolSelector = v1alpha1.PoolSelectorOf(selector)
	}
	return claim, nil
}

// sameRequest returns an error if a stored claim asked for something else. A field that is left
// out now can have any value there: it was filled in when the claim was stored.
func sameRequest(asked, stored *v1alpha1.IPClaim) error {
	if !stored.DeletionTimestamp.IsZero() {
		return command.Coded(command.ExitConflict, fmt.Errorf("IPClaim %s: is being deleted: wait until it is gone, or choose another --name", stored.Name))
	}
	field, has, wants := difference(&asked.Spec, &stored.Spec)
	if field == "" {
		return nil
	}
	return command.Coded(command.ExitConflict, fmt.Errorf("IPClaim %s exists and asked for something else: %s is %s, and not %s: choose another --name, or release it first: kubectl ipam release ipclaim/%s%s",
		stored.Name, field, cmp.Or(has, "not set"), cmp.Or(wants, "left out"), stored.Name, command.InNamespace(stored)))
}

// difference names the first field in which the request differs from the stored claim.
func difference(asked, stored *v1alpha1.IPClaimSpec) (field, has, wants string) {
	switch {
	case poolOf(asked.PoolRef) != poolOf(stored.PoolRef):
		return "spec.poolRef", poolOf(stored.PoolRef), poolOf(asked.PoolRef)
	case !apiequality.Semantic.DeepEqual(asked.PoolSelector, stored.PoolSelector):
		return "spec.poolSelector", selectorText(stored.PoolSelector), selectorText(asked.PoolSelector)
	}
	for _, f := range []struct{ field, has, wants string }{
		{"spec.className", stored.ClassName, asked.ClassName},
		{"spec.ipFamily", string(stored.IPFamily), string(asked.IPFamily)},
		{"spec.prefixLength", command.Length{Bits: &stored.PrefixLength}.String(), command.Length{Bits: &asked.PrefixLength}.String()},
		{"spec.cidr", stored.CIDR, asked.CIDR},
		{"spec.reclaimPolicy", string(stored.ReclaimPolicy), string(asked.ReclaimPolicy)},
	} {
		if f.wants != "" && f.wants != f.has {
			return f.field, f.has, f.wants
		}
	}
	return "", "", ""
}

// poolOf names a pool as an argument does; empty if there is none.
func poolOf(ref *v1alpha1.PoolReference) string {
	switch {
	case ref == nil:
		return ""
	case ref.Kind == v1alpha1.PoolKindLocalIPPool:
		return "localippool/" + ref.Name
	default:
		return "ippool/" + ref.Name
	}
}

func selectorText(selector *v1alpha1.PoolSelector) string {
	if selector == nil {
		return ""
	}
	return metav1.FormatLabelSelector(selector.LabelSelector())
}

func isBound(claim *v1alpha1.IPClaim) bool { return claim.Status.Phase == v1alpha1.ClaimBound }

// await watches a claim until it has its block. The claim stays in every case.
func (c *claiming) await(ctx context.Context, claim *v1alpha1.IPClaim) (*v1alpha1.IPClaim, error) {
	c.Note("%s; waiting for %s at most", whyWaiting(claim, "waits"), c.wait.AtMost)
	last := claim
	watched := &command.Awaited[*v1alpha1.IPClaim]{
		Client: c.client, Named: claim.DeepCopy(), List: &v1alpha1.IPClaimList{},
		Until: func(seen *v1alpha1.IPClaim) (bool, error) {
			last = seen.DeepCopy()
			return isBound(seen), nil
		},
		Gone: func() error {
			return command.Coded(command.ExitNotFound, fmt.Errorf("IPClaim %s was deleted while it waited: run the command again to make a new one", claim.Name))
		},
	}
	err := watched.Wait(ctx, c.wait.AtMost)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return last, command.Coded(command.ExitTimedOut, fmt.Errorf("%s\n%s", whyWaiting(last, "stays, and waits still after "+c.wait.AtMost.String()), whatNow(last)))
	case errors.Is(err, command.ErrInterrupted):
		return last, fmt.Errorf("interrupted: %s\n%s", whyWaiting(last, "stays and waits"), whatNow(last))
	}
	return last, err
}

// waits returns the error of a claim that is stored and has no block; nil if it has one.
func (c *claiming) waits(claim *v1alpha1.IPClaim) error {
	if isBound(claim) {
		return nil
	}
	if *c.dryRun == command.DryRunServer {
		return command.Coded(codeOfReason(readyReason(claim)), fmt.Errorf("the claim would wait: %s", readyMessage(claim)))
	}
	return command.Coded(codeOfReason(readyReason(claim)), fmt.Errorf("%s\n%s", whyWaiting(claim, "is stored and waits"), whatNow(claim)))
}

// whatNow lists the commands for a claim that waits, one per line.
func whatNow(claim *v1alpha1.IPClaim) string {
	target := claim.Name + command.InNamespace(claim)
	return "  see why:      kubectl ipam explain " + target +
		"\n  wait for it:  kubectl wait --for=condition=Ready --timeout=10m ipclaim " + target +
		"\n  give it up:   kubectl ipam release ipclaim/" + target
}

// whyWaiting explains why a claim that does this, such as wait, has no block.
func whyWaiting(claim *v1alpha1.IPClaim, does string) string {
	return fmt.Sprintf("IPClaim %s %s (%s): %s", claim.Name, does, readyReason(claim), readyMessage(claim))
}

func readyReason(claim *v1alpha1.IPClaim) string {
	if ready := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		return ready.Reason
	}
	return "NoAnswer"
}

func readyMessage(claim *v1alpha1.IPClaim) string {
	if ready := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		return ready.Message
	}
	return "no operator has answered it: see whether Cadastre runs"
}

// codeOfReason returns the exit code for a claim that waits for a reason.
func codeOfReason(reason string) command.ExitCode {
	switch reason {
	case v1alpha1.ReasonClassNotFound, v1alpha1.ReasonNoDefaultClass, v1alpha1.ReasonPoolNotFound, v1alpha1.ReasonNoPoolForClass, v1alpha1.ReasonClusterNotFound:
		return command.ExitNotFound
	case v1alpha1.ReasonConflict:
		return command.ExitConflict
	case v1alpha1.ReasonLimitReached, v1alpha1.ReasonTooManyWaiting:
		return command.ExitLimit
	case v1alpha1.ReasonPolicyViolation:
		return command.ExitUsage
	case v1alpha1.ReasonRecordRefused:
		return command.ExitForbidden
	case v1alpha1.ReasonPoolExhausted, v1alpha1.ReasonCannotFit, v1alpha1.ReasonPoolNotReady:
		return command.ExitExhausted
	default:
		return command.ExitError
	}
}
