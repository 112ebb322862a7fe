package edit

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
)

func newCreatePool(e *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pool NAME",
		Short: "Make a pool, and print its CIDR",
		Long: `Make a pool, and print its CIDR: a root pool with --cidr, or a child pool with --parent and
--length, which is given a block of its parent. With --local it is the namespace's own, a
LocalIPPool: only claims of the namespace are served from it.`,
		Example: `  # Give team-a a /20 of core as a pool of its own
  kubectl ipam create pool team-a --parent core --length 20 --local -n team-a

  # The same as a pool of the platform, which claims of the project team-a alone may use
  kubectl ipam create pool team-a --parent core --length 20 --project team-a

  # A root pool of host addresses
  kubectl ipam create pool rack-7 --cidr 192.0.2.0/24 --gateway 192.0.2.1 --dns 192.0.2.53 --class nodes

  # The manifest
  kubectl ipam create pool team-a --parent core --length 20 --dry-run=client -o yaml`,
		Args: cobra.ExactArgs(1),
	}
	p := &poolMaking{Env: e, flags: &poolFlags{}}
	p.flags.bind(e, cmd)
	p.dryRun, p.wait, p.output = command.BindDryRun(cmd), command.BindWait(cmd, "the pool is ready"), command.BindOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := errors.Join(p.dryRun.Check(), p.flags.check()); err != nil {
			return err
		}
		return p.run(cmd.Context(), args[0])
	}
	return cmd
}

// poolMaking represents one run of the command.
type poolMaking struct {
	*command.Env
	flags  *poolFlags
	dryRun *command.DryRun
	wait   *command.Waiting
	output *command.Output
}

func (p *poolMaking) run(ctx context.Context, name string) error {
	namespace, err := p.Namespace()
	if err != nil {
		return err
	}
	pool := p.flags.pool(namespace, name)
	if *p.dryRun == command.DryRunClient {
		return p.show(pool)
	}
	c, err := p.Client()
	if err != nil {
		return err
	}
	if err := c.Create(ctx, pool, p.dryRun); err != nil {
		return err
	}
	if p.wait.AtMost > 0 && *p.dryRun == command.DryRunNone {
		if pool, err = p.await(ctx, c, pool); err != nil {
			return err
		}
	}
	if err := p.show(pool); err != nil {
		return err
	}
	if pool.PoolSpec().CIDR == "" && *p.dryRun == command.DryRunNone {
		return command.Coded(command.ExitExhausted, fmt.Errorf("the pool %s is stored and waits for a block of %s: to give it up: kubectl delete %s %[1]s%[4]s",
			name, pool.PoolSpec().ParentRef.Name, lower(string(pool.PoolKind())), command.InNamespace(pool)))
	}
	return nil
}

// show prints the pool, with the CIDR that it has.
func (p *poolMaking) show(pool v1alpha1.Pool) error {
	printed, err := command.Outcome(pool, p.dryRun.Done("created"))
	if err != nil {
		return err
	}
	printed.AsManifest = *p.dryRun == command.DryRunClient
	if *p.dryRun != command.DryRunClient {
		printed.Rows = func(bool) *command.Table {
			t := &command.Table{Headers: []string{"POOL", "CIDR", "PARENT", "PHASE"}}
			parent := ""
			if ref := pool.PoolSpec().ParentRef; ref != nil {
				parent = ref.Name
			}
			phase := cmp.Or(string(pool.PoolStatus().Phase), p.dryRun.Done("created"))
			t.Add(command.Text("%s", pool.GetName()), command.Cell{Text: command.OrNone(pool.PoolSpec().CIDR), Style: command.Strong}, command.Text("%s", command.OrNone(parent)), command.Text("%s", phase))
			return t
		}
	}
	return p.Print(p.output, printed)
}

// await watches a pool until it is ready. The pool stays in every case.
func (p *poolMaking) await(ctx context.Context, c client.WithWatch, pool v1alpha1.Pool) (v1alpha1.Pool, error) {
	last := pool
	watched := &command.Awaited[v1alpha1.Pool]{
		Client: c, Named: pool.DeepCopyObject().(v1alpha1.Pool), List: listOf(pool),
		Until: func(seen v1alpha1.Pool) (bool, error) {
			last = seen.DeepCopyObject().(v1alpha1.Pool)
			return meta.IsStatusConditionTrue(seen.PoolStatus().Conditions, v1alpha1.ConditionReady), nil
		},
		Gone: func() error {
			return command.Coded(command.ExitNotFound, fmt.Errorf("%s %s was deleted before it was ready: run the command again to make another", pool.PoolKind(), pool.GetName()))
		},
	}
	err := watched.Wait(ctx, p.wait.AtMost)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return last, command.Coded(command.ExitTimedOut, fmt.Errorf("%s\nthe pool stays and waits, still after %s: to give it up: kubectl delete %s %s%s", notReady(last), p.wait.AtMost, lower(string(pool.PoolKind())), pool.GetName(), command.InNamespace(pool)))
	case errors.Is(err, command.ErrInterrupted):
		return last, fmt.Errorf("interrupted: %s; the pool stays and waits", notReady(last))
	}
	return last, err
}

func listOf(pool v1alpha1.Pool) client.ObjectList {
	if pool.PoolKind() == v1alpha1.PoolKindLocalIPPool {
		return &v1alpha1.LocalIPPoolList{}
	}
	return &v1alpha1.IPPoolList{}
}

func notReady(pool v1alpha1.Pool) string {
	why := "no operator has answered it: see whether Cadastre runs"
	if ready := meta.FindStatusCondition(pool.PoolStatus().Conditions, v1alpha1.ConditionReady); ready != nil {
		why = fmt.Sprintf("%s: %s", ready.Reason, ready.Message)
	}
	return fmt.Sprintf("%s %s is not ready: %s", pool.PoolKind(), pool.GetName(), why)
}
