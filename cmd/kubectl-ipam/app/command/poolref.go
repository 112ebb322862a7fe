package command

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

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

// PoolNamed returns the pool that an argument names: localippool/NAME, ippool/NAME, or NAME alone
// for a LocalIPPool of the namespace, else an IPPool. It does not check whether there is an
// IPPool of the name: a caller can use pools that they cannot read.
func PoolNamed(ctx context.Context, c client.Client, namespace, argument string) (v1alpha1.PoolReference, error) {
	kind, name := SplitKind(argument)
	switch kind {
	case "ippool":
		return v1alpha1.PoolReference{Kind: v1alpha1.PoolKindIPPool, Name: name}, nil
	case "localippool":
		return v1alpha1.PoolReference{Kind: v1alpha1.PoolKindLocalIPPool, Name: name}, nil
	case "":
	default:
		return v1alpha1.PoolReference{}, Coded(ExitUsage, fmt.Errorf("%s: is no pool: write ippool/NAME or localippool/NAME", argument))
	}
	local := &v1alpha1.LocalIPPool{}
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, local)
	switch {
	case err == nil:
		return v1alpha1.PoolReference{Kind: v1alpha1.PoolKindLocalIPPool, Name: name}, nil
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return v1alpha1.PoolReference{Kind: v1alpha1.PoolKindIPPool, Name: name}, nil
	default:
		return v1alpha1.PoolReference{}, err
	}
}
