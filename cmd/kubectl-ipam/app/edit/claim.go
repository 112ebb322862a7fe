package edit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	c := &claiming{editing: bindEditing(e, cmd)}
	c.bind(cmd)
	command.BindWait(cmd, &c.wait, "the claim has its block")
	cmd.Flags().BoolVarP(&c.quiet, "quiet", "q", false, "print the block alone")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		sources := slices.DeleteFunc([]string{c.spec.ClassName, c.pool, c.selector}, func(source string) bool { return source == "" })
		switch {
		case c.quiet && cmd.Flags().Changed("output"):
			return command.Coded(command.ExitUsage, errors.New("--quiet and --output exclude each other: leave one out"))
		case len(sources) > 1:
			return command.Coded(command.ExitUsage, errors.New("--class, --pool and --selector exclude each other: keep one of them"))
		}
		return c.run(cmd.Context())
	}
	return cmd
}

// claiming represents one run of the command, with its flags. The spec holds the requested fields,
// except for the pool and the selector.
type claiming struct {
	*editing
	name, pool, selector string
	spec                 v1alpha1.IPClaimSpec
	wait                 time.Duration
	quiet                bool
}

func (c *claiming) run(ctx context.Context) error {
	if err := c.connect(); err != nil {
		return err
	}
	claim, err := c.claim(ctx)
	if err != nil {
		return err
	}
	if c.dryRun == command.DryRunClient {
		return c.sayCreated(claim)
	}
	if claim, err = c.create(ctx, claim); err != nil {
		return err
	}
	if !isBound(claim) && c.dryRun == command.DryRunNone && c.wait > 0 {
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
	err := c.client.Create(ctx, made, c.createOptions())
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
	if c.quiet {
		fmt.Fprintln(c.Out, claim.Status.AllocatedCIDR)
		return nil
	}
	return c.Print(c.output, &command.Object{Object: claim, Rows: func(wide bool) *command.Table { return claimTable(claim, wide) }})
}

func claimTable(claim *v1alpha1.IPClaim, wide bool) *command.Table {
	pool, gateway := "", ""
	if ref := claim.Status.PoolRef; ref != nil {
		pool = ref.Name
	}
	if network := claim.Status.Network; network != nil {
		gateway = network.Gateway
	}
	t := &command.Table{Headers: []string{"CLAIM", "BLOCK", "POOL", "CLASS", "PHASE"}}
	cells := texts(claim.Name, claim.Status.AllocatedCIDR, pool, claim.Spec.ClassName, string(claim.Status.Phase))
	cells[1].Style = command.Strong
	if wide {
		t.Headers = append(t.Headers, "GATEWAY", "RECLAIM", "ALLOCATION")
		cells = append(cells, texts(gateway, string(claim.Spec.ReclaimPolicy), claim.Spec.AllocationName)...)
	}
	t.Add(cells...)
	return t
}

func (c *claiming) bind(cmd *cobra.Command) {
	flags, spec := cmd.Flags(), &c.spec
	flags.StringVar(&c.name, "name", "", "name of the claim; without one the API server makes one up")
	flags.StringVar(&spec.ClassName, "class", "", "class that serves the claim")
	flags.StringVar(&c.pool, "pool", "", "pool that serves the claim: a LocalIPPool of the namespace, else an IPPool; or localippool/NAME, ippool/NAME")
	flags.StringVarP(&c.selector, "selector", "l", "", "labels of the pools that may serve the claim, such as site=a")
	flags.Var(command.Length{Bits: &spec.PrefixLength}, "length", "size of the block: 24 for a /24 (default: that of the class or the pool)")
	flags.StringVar(&spec.CIDR, "cidr", "", "ask for exactly this block, or this address")
	flags.StringVar((*string)(&spec.IPFamily), "family", "", "address family: IPv4 or IPv6 (default: that of the class or the pool)")
	flags.StringVar((*string)(&spec.ReclaimPolicy), "reclaim-policy", "", "what becomes of the block when the claim is released: Delete or Retain (default: that of the class)")
	command.Complete(cmd, "family", command.Families()...)
	command.Complete(cmd, "reclaim-policy", string(v1alpha1.ReclaimDelete), string(v1alpha1.ReclaimRetain))
	command.CompleteWith(cmd, "class", c.CompleteNames(&v1alpha1.IPClassList{}))
	command.CompleteWith(cmd, "pool", c.CompleteNames(&v1alpha1.LocalIPPoolList{}, &v1alpha1.IPPoolList{}))
}

// claim returns the claim that the flags describe.
func (c *claiming) claim(ctx context.Context) (*v1alpha1.IPClaim, error) {
	claim := &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: c.name}, Spec: c.spec}
	if c.name == "" {
		claim.GenerateName = "claim-"
	}
	claim.Spec.CIDR = command.AsBlock(c.spec.CIDR)
	if c.pool != "" {
		ref, err := command.FindPool(ctx, c.client, c.namespace, c.pool)
		if err != nil {
			return nil, err
		}
		claim.Spec.PoolRef = &ref
	}
	if c.selector != "" {
		selector, err := metav1.ParseToLabelSelector(c.selector)
		if err != nil {
			return nil, command.Coded(command.ExitUsage, fmt.Errorf("--selector=%s: %w: write one such as site=a", c.selector, err))
		}
		claim.Spec.PoolSelector = v1alpha1.PoolSelectorOf(selector)
	}
	return claim, nil
}

// sameRequest returns an error if a stored claim asked for something else. A field that is left
// out now can have any value there: it was filled in when the claim was stored. The pool and the
// selector are not filled in.
func sameRequest(asked, stored *v1alpha1.IPClaim) error {
	if !stored.DeletionTimestamp.IsZero() {
		return command.Coded(command.ExitConflict, fmt.Errorf("IPClaim %s: is being deleted: wait until it is gone, or choose another --name", stored.Name))
	}
	for _, f := range []struct {
		field, has, wants string
		isFilledIn        bool
	}{
		{"spec.poolRef", poolOf(stored.Spec.PoolRef), poolOf(asked.Spec.PoolRef), false},
		{"spec.poolSelector", selectorText(stored.Spec.PoolSelector), selectorText(asked.Spec.PoolSelector), false},
		{"spec.className", stored.Spec.ClassName, asked.Spec.ClassName, true},
		{"spec.ipFamily", string(stored.Spec.IPFamily), string(asked.Spec.IPFamily), true},
		{"spec.prefixLength", command.Length{Bits: &stored.Spec.PrefixLength}.String(), command.Length{Bits: &asked.Spec.PrefixLength}.String(), true},
		{"spec.cidr", stored.Spec.CIDR, asked.Spec.CIDR, true},
		{"spec.reclaimPolicy", string(stored.Spec.ReclaimPolicy), string(asked.Spec.ReclaimPolicy), true},
	} {
		if f.has != f.wants && (f.wants != "" || !f.isFilledIn) {
			return command.Coded(command.ExitConflict, fmt.Errorf("IPClaim %s exists and asked for something else: %s is %s, and not %s: choose another --name, or release it first: kubectl ipam release ipclaim/%s%s",
				stored.Name, f.field, cmp.Or(f.has, "not set"), cmp.Or(f.wants, "left out"), stored.Name, command.InNamespace(stored)))
		}
	}
	return nil
}

// poolOf names a pool as an argument does; empty if there is none.
func poolOf(ref *v1alpha1.PoolReference) string {
	if ref == nil {
		return ""
	}
	return strings.ToLower(string(cmp.Or(ref.Kind, v1alpha1.PoolKindIPPool))) + "/" + ref.Name
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
	c.Note("%s; waiting for %s at most", whyWaiting(claim, "waits"), c.wait)
	last, err := command.Await(ctx, c.client, claim, c.wait, isBound)
	switch {
	case errors.Is(err, command.ErrDeleted):
		err = command.Coded(command.ExitNotFound, fmt.Errorf("IPClaim %s was deleted while it waited: run the command again to make a new one", claim.Name))
	case errors.Is(err, context.DeadlineExceeded):
		err = command.Coded(command.ExitTimedOut, fmt.Errorf("%s\n%s", whyWaiting(last, "stays, and waits still after "+c.wait.String()), whatNow(last)))
	case errors.Is(err, command.ErrInterrupted):
		err = fmt.Errorf("interrupted: %s\n%s", whyWaiting(last, "stays and waits"), whatNow(last))
	}
	return last, err
}

// waits returns the error of a claim that is stored and has no block; nil if it has one.
func (c *claiming) waits(claim *v1alpha1.IPClaim) error {
	reason, message := readyOf(claim.Status.Conditions)
	switch {
	case isBound(claim):
		return nil
	case c.dryRun == command.DryRunServer:
		return command.Coded(codeOfReason(reason), fmt.Errorf("the claim would wait: %s", message))
	}
	return command.Coded(codeOfReason(reason), fmt.Errorf("%s\n%s", whyWaiting(claim, "is stored and waits"), whatNow(claim)))
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
	reason, message := readyOf(claim.Status.Conditions)
	return fmt.Sprintf("IPClaim %s %s (%s): %s", claim.Name, does, reason, message)
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
	case v1alpha1.ReasonPoolExhausted, v1alpha1.ReasonCannotFit, v1alpha1.ReasonPoolNotReady, v1alpha1.ReasonWaitingForProvisioner:
		return command.ExitExhausted
	default:
		return command.ExitError
	}
}
