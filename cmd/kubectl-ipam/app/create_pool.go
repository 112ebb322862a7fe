package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

func newCreatePool(e *env) *cobra.Command {
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
	p := &poolMaking{env: e, flags: &poolFlags{}}
	p.flags.bind(e, cmd)
	p.dryRun, p.wait, p.output = bindDryRun(cmd), bindWait(cmd, "the pool is ready"), bindOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := errors.Join(p.dryRun.check(), p.flags.check()); err != nil {
			return err
		}
		return p.run(cmd.Context(), args[0])
	}
	return cmd
}

// poolMaking is one run of the command.
type poolMaking struct {
	*env
	flags  *poolFlags
	dryRun *dryRun
	wait   *waiting
	output *output
}

func (p *poolMaking) run(ctx context.Context, name string) error {
	namespace, err := p.namespace()
	if err != nil {
		return err
	}
	pool := p.flags.pool(namespace, name)
	if *p.dryRun == dryRunClient {
		return p.show(pool)
	}
	c, err := p.client()
	if err != nil {
		return err
	}
	if err := c.Create(ctx, pool, p.dryRun); err != nil {
		return err
	}
	if p.wait.atMost > 0 && *p.dryRun == dryRunNone {
		if pool, err = p.await(ctx, c, pool); err != nil {
			return err
		}
	}
	if err := p.show(pool); err != nil {
		return err
	}
	if pool.PoolSpec().CIDR == "" && *p.dryRun == dryRunNone {
		return coded(ExitExhausted, fmt.Errorf("the pool %s is stored and waits for a block of %s: to give it up: kubectl delete %s %[1]s%[4]s",
			name, pool.PoolSpec().ParentRef.Name, lower(string(pool.PoolKind())), inNamespace(pool)))
	}
	return nil
}

// show prints the pool, with the CIDR that it has.
func (p *poolMaking) show(pool v1alpha1.Pool) error {
	printed, err := outcome(pool, p.dryRun.done("created"))
	if err != nil {
		return err
	}
	printed.asManifest = *p.dryRun == dryRunClient
	if *p.dryRun != dryRunClient {
		printed.rows = func(bool) *table {
			t := &table{headers: []string{"POOL", "CIDR", "PARENT", "PHASE"}}
			parent := ""
			if ref := pool.PoolSpec().ParentRef; ref != nil {
				parent = ref.Name
			}
			phase := cmp.Or(string(pool.PoolStatus().Phase), p.dryRun.done("created"))
			t.add(text("%s", pool.GetName()), cell{text: orNone(pool.PoolSpec().CIDR), style: strong}, text("%s", orNone(parent)), text("%s", phase))
			return t
		}
	}
	return p.print(p.output, printed)
}

// await watches a pool until it is ready. The pool stays whatever happens.
func (p *poolMaking) await(ctx context.Context, c client.WithWatch, pool v1alpha1.Pool) (v1alpha1.Pool, error) {
	last := pool
	watched := &awaited[v1alpha1.Pool]{
		client: c, named: pool.DeepCopyObject().(v1alpha1.Pool), list: listOf(pool),
		until: func(seen v1alpha1.Pool) (bool, error) {
			last = seen.DeepCopyObject().(v1alpha1.Pool)
			return meta.IsStatusConditionTrue(seen.PoolStatus().Conditions, v1alpha1.ConditionReady), nil
		},
		gone: func() error {
			return coded(ExitNotFound, fmt.Errorf("%s %s was deleted before it was ready: run the command again to make another", pool.PoolKind(), pool.GetName()))
		},
	}
	err := watched.wait(ctx, p.wait.atMost)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return last, coded(ExitTimedOut, fmt.Errorf("%s\nthe pool stays and waits, still after %s: to give it up: kubectl delete %s %s%s", notReady(last), p.wait.atMost, lower(string(pool.PoolKind())), pool.GetName(), inNamespace(pool)))
	case errors.Is(err, errInterrupted):
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
