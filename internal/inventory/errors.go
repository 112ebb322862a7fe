package inventory

import (
	"fmt"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

func missing(reason, format string, args ...any) *ipam.MissingError {
	return &ipam.MissingError{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// noPool is the error for a pool that does not exist, and of one that it
// may not use: the same. Another is what it could name instead.
func noPool(req ipam.Request, reason, another string) *ipam.MissingError {
	if req.Pool.Kind != ipam.PoolKindIPPool {
		return missing(reason, "there is no %s %q: create it, or name another %s", req.Pool.Kind, req.Pool.Name, another)
	}
	asking := "namespace"
	if req.Namespace() == "" {
		asking = "pool"
	}
	return missing(reason, "there is no %s %q that this %s may use: create it, name another %s, or ask for the right to use it",
		req.Pool.Kind, req.Pool.Name, asking, another)
}

// NoSuchPool is the error of MayHold for a pool that does not exist, or may not be used.
func NoSuchPool(req ipam.Request, key ipam.PoolKey) error {
	req.Pool = key
	return noPool(req, v1alpha1.ReasonPoolNotFound, "one")
}
