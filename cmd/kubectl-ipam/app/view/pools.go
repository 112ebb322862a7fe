package view

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// NewPools returns the command pools.
func NewPools(e *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pools [NAME]",
		Short: "Show how full the pools are",
		Long: `Show how full the pools are, in the order of their addresses. HELD is what claims hold of a
pool, CARVED is what its child pools are, WITHHELD is never handed out, and the rest is FREE.
USED is what is held of the pool and of all pools below it.

The figures are those of the pools' status, which the operator writes within a second or two.
With --count they are counted from the records, and what is retained or cooling is counted
beside what claims hold. With 100,000 records that takes some seconds.

If you may not list pools, those that your claims could use are shown, with what the
operator tells in answer to a dry run. HELD is then what you can see of it.`,
		Example: `  # All pools
  kubectl ipam pools

  # One pool, a LocalIPPool of the namespace before an IPPool
  kubectl ipam pools nodes -o yaml

  # Count the records, whatever the status says
  kubectl ipam pools --count`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: e.First(&v1alpha1.IPPoolList{}, &v1alpha1.LocalIPPoolList{}),
	}
	o := command.BindOutput(cmd)
	e.BindEverywhere(cmd)
	count := cmd.Flags().Bool("count", false, "count the records, rather than to take the figures from the pools' status")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		scope := register.NoneOfKnown()
		if *count {
			scope = register.Scope{}
		}
		r, err := e.ReadScope(cmd, scope)
		if err != nil {
			return err
		}
		report := reportOfPools(r, candidatesFor(e, cmd, r))
		if len(args) > 0 {
			if err := selectPool(e, report, args[0]); err != nil {
				return err
			}
		}
		return e.Print(o, report)
	}
	return cmd
}

// selectPool removes all pools but one from a report.
func selectPool(e *command.Env, report *PoolReport, name string) error {
	namespace, err := e.Namespace()
	if err != nil {
		return err
	}
	for _, wanted := range []ipam.PoolKey{ipam.LocalPoolNamed(namespace, name), ipam.PoolNamed(name)} {
		if i := slices.IndexFunc(report.Pools, func(p PoolUse) bool { return p.key() == wanted }); i >= 0 {
			report.Pools = report.Pools[i : i+1]
			report.Pools[0].depth = 0
			return nil
		}
	}
	return NoPool(namespace, name)
}

// findPool finds a pool by its name: a LocalIPPool of the namespace, else an IPPool.
func findPool(e *command.Env, r *register.Register, name string) (*register.Pool, error) {
	namespace, err := e.Namespace()
	if err != nil {
		return nil, err
	}
	if pool := r.Pool(ipam.LocalPoolNamed(namespace, name)); pool != nil {
		return pool, nil
	}
	if pool := r.Pool(ipam.PoolNamed(name)); pool != nil {
		return pool, nil
	}
	return nil, NoPool(namespace, name)
}

// NoPool returns the error of a pool that the caller cannot read.
func NoPool(namespace, name string) error {
	return command.Coded(command.ExitNotFound, fmt.Errorf("pool %s: there is no LocalIPPool of namespace %s and no IPPool of that name that you may read: see kubectl ipam pools", name, namespace))
}
