package webhooks

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/cadastre-dev/cadastre/internal/authorize"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// withGrant returns the request with the right of the user to use the pool that it names. It asks
// for the right if the request lacks it, and if the pool or the namespace is not known yet. It
// ignores the grant in the request: an object states that, and its creator must not decide it.
func withGrant(ctx context.Context, catalog *inventory.Catalog, rights *authorize.Rights, user authenticationv1.UserInfo, request ipam.Request) (ipam.Request, error) {
	request.Grant = nil
	if !catalog.LacksRight(request) {
		return request, nil
	}
	pool, _ := catalog.Pool(request.Pool)
	isAllowed, err := rights.MayUse(ctx, user, request.Pool)
	if isAllowed {
		request.Grant = &ipam.Grant{PoolUID: pool.Spec.UID}
	}
	return request, err
}
