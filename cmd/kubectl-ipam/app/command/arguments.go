package command

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Length represents a flag for the size of a block: 24 or /24. It is nil if it is not set.
type Length struct{ Bits **int32 }

var _ pflag.Value = Length{}

// String implements pflag.Value.
func (l Length) String() string {
	if l.Bits == nil || *l.Bits == nil {
		return ""
	}
	return "/" + strconv.Itoa(int(**l.Bits))
}

// Set implements pflag.Value.
func (l Length) Set(text string) error {
	bits, err := strconv.ParseInt(strings.TrimPrefix(text, "/"), 10, 32)
	if err != nil || bits < 0 || bits > 128 {
		return fmt.Errorf("is not a prefix length: write one such as 24 or /24")
	}
	short := int32(bits)
	*l.Bits = &short
	return nil
}

// Type implements pflag.Value.
func (Length) Type() string { return "length" }

// AsBlock reads a block as people write it: an address alone is a block of one.
func AsBlock(text string) string {
	if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" {
		return netip.PrefixFrom(address, address.BitLen()).String()
	}
	return text
}

// Families returns the values of a flag that names an address family.
func Families() []string { return []string{string(v1alpha1.IPv4), string(v1alpha1.IPv6)} }

// SplitKind splits an argument as kubectl writes an object, kind/name. The kind is in lower
// case, in the singular and without its group; empty if there is only a name.
func SplitKind(argument string) (kind, name string) {
	kind, name, found := strings.Cut(argument, "/")
	if !found {
		return "", argument
	}
	kind, _, _ = strings.Cut(strings.ToLower(kind), ".")
	return strings.TrimSuffix(kind, "s"), name
}

// PoolOf reads an argument that names a pool: localippool/NAME, ippool/NAME, or NAME alone, which
// has no kind.
func PoolOf(argument string) (v1alpha1.PoolReference, error) {
	kind, name := SplitKind(argument)
	kinds := map[string]v1alpha1.PoolKind{
		"ippool": v1alpha1.PoolKindIPPool, "localippool": v1alpha1.PoolKindLocalIPPool, "": "",
		"inclusterippool": v1alpha1.PoolKindInClusterIPPool, "globalinclusterippool": v1alpha1.PoolKindGlobalInClusterIPPool,
	}
	poolKind, ok := kinds[kind]
	if !ok {
		return v1alpha1.PoolReference{}, Coded(ExitUsage, fmt.Errorf("%s: is no pool: write ippool/NAME or localippool/NAME", argument))
	}
	return v1alpha1.PoolReference{Kind: poolKind, Name: name}, nil
}

// FindPool returns the pool that an argument names as for PoolOf; NAME alone is a LocalIPPool of
// the namespace, else an IPPool. It does not check whether there is an IPPool of the name: a caller
// can use pools that they cannot read.
func FindPool(ctx context.Context, c client.Client, namespace, argument string) (v1alpha1.PoolReference, error) {
	ref, err := PoolOf(argument)
	if err != nil || ref.Kind != "" {
		return ref, err
	}
	ref.Kind = v1alpha1.PoolKindLocalIPPool
	err = c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, &v1alpha1.LocalIPPool{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		ref.Kind, err = v1alpha1.PoolKindIPPool, nil
	}
	return ref, err
}

// Complete registers the values that the shell offers for a flag.
func Complete(cmd *cobra.Command, flag string, values ...string) {
	CompleteWith(cmd, flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// CompleteWith registers the completion of the values of a flag.
func CompleteWith(cmd *cobra.Command, flag string, list cobra.CompletionFunc) {
	utilruntime.Must(cmd.RegisterFlagCompletionFunc(flag, list))
}

// allowedValues annotates a flag with the values that it can have.
const allowedValues = "allowed-values"

// limit lets a flag have these values alone, and offers them to the shell. CheckValues reports
// others.
func limit(cmd *cobra.Command, flags *pflag.FlagSet, flag string, values ...string) {
	utilruntime.Must(flags.SetAnnotation(flag, allowedValues, values))
	Complete(cmd, flag, values...)
}

// CheckValues returns an error if a flag that can have some values alone has another one.
func CheckValues(cmd *cobra.Command) (err error) {
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		values := flag.Annotations[allowedValues]
		if err == nil && len(values) > 0 && !slices.Contains(values, flag.Value.String()) {
			err = Coded(ExitUsage, fmt.Errorf("--%s=%s: is none of %s", flag.Name, flag.Value, ipam.JoinTexts(values)))
		}
	})
	return err
}

// First returns a completion that offers the names of objects for the first argument, and nothing
// for others.
func (e *Env) First(lists ...client.ObjectList) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return e.Names(cmd, lists...)
	}
}

// CompleteNames returns a completion that offers the names of objects.
func (e *Env) CompleteNames(lists ...client.ObjectList) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return e.Names(cmd, lists...)
	}
}

// FirstPool returns a completion that offers the names of pools for the first argument.
func (e *Env) FirstPool() cobra.CompletionFunc {
	return e.First(&v1alpha1.IPPoolList{}, &v1alpha1.LocalIPPoolList{}, &incluster.InClusterIPPoolList{}, &incluster.GlobalInClusterIPPoolList{})
}

// Names returns the names of objects in the namespace, and of cluster-scoped objects. It leaves
// out objects that cannot be listed.
func (e *Env) Names(cmd *cobra.Command, lists ...client.ObjectList) ([]string, cobra.ShellCompDirective) {
	c, namespace, err := e.ClientAndNamespace()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, list := range lists {
		list = list.DeepCopyObject().(client.ObjectList)
		if err := c.List(cmd.Context(), list, client.InNamespace(namespace)); err != nil {
			continue
		}
		utilruntime.Must(meta.EachListItem(list, func(obj runtime.Object) error {
			names = append(names, obj.(client.Object).GetName())
			return nil
		}))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// DryRun represents the flag --dry-run, as in kubectl. Without a value it means the server,
// because only the server knows which block would be given.
type DryRun string

// The values of --dry-run.
const (
	DryRunNone   DryRun = "none"
	DryRunClient DryRun = "client"
	DryRunServer DryRun = "server"
)

// BindDryRun binds the flag --dry-run.
func BindDryRun(cmd *cobra.Command, d *DryRun) {
	cmd.Flags().StringVar((*string)(d), "dry-run", string(DryRunNone),
		"none; server: ask the API server what would be done, and do nothing; client: only print the object that would be sent")
	cmd.Flag("dry-run").NoOptDefVal = string(DryRunServer)
	limit(cmd, cmd.Flags(), "dry-run", string(DryRunNone), string(DryRunClient), string(DryRunServer))
}

// Done returns the report that something was done, or would be.
func (d DryRun) Done(what string) string {
	switch d {
	case DryRunClient:
		return what + " (dry run)"
	case DryRunServer:
		return what + " (server dry run)"
	default:
		return what
	}
}

// OnServer returns the field dryRun of a request.
func (d DryRun) OnServer() []string {
	if d == DryRunServer {
		return []string{metav1.DryRunAll}
	}
	return nil
}
