package edit

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
)

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
