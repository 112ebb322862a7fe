package allocator

import (
	"context"

	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Feed keeps the catalogue up to date from the informers of a cache. To be called once,
// before the cache is started; FeedClaims does the rest.
func (p Parts) Feed(ctx context.Context, from ctrlcache.Cache) error {
	sources, err := p.Catalogue.Feed(ctx, from)
	if err != nil {
		return err
	}
	for _, synced := range sources {
		p.Queue.FedBy(synced)
	}
	p.Allocator.claims.await()
	return nil
}

// FeedClaims keeps the queue and the ledger's knowledge of claims up to date from
// the informer of a cache. There may be a hundred thousand claims, and few that
// wait: those are asked for first, so that blocks can be handed out, and nobody is
// overtaken, before the others are known. It returns when they are, or ctx is done.
// To be called once, after Feed.
func (p Parts) FeedClaims(ctx context.Context, live client.Reader, from ctrlcache.Cache) {
	p.Allocator.claims.feed(ctx, live, from)
}

// KnowsClaims reports whether every IPClaim has been seen once. Until then a cache of
// them has its readers wait, and records seem unclaimed that are not.
func (p Parts) KnowsClaims() bool { return p.Allocator.claims.known() }
