package edit

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
made in the namespace, from a class, a pool, or the default class where neither is named. To
give it back, release the claim.

Where there is no room the claim is stored and waits; the exit code says so. To run the
same command again is safe with --name: what asks for the same gets the same claim.`,
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
		return nil, fmt.Errorf("interrupted while the claim was created: it may be stored all the same: see kubectl get ipclaim%s", command.InNamespace(claim))
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
