package ipaddressclaim

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// claims returns a handler that enqueues claims that are new or have changed, and are not up to
// date. If a claim was deleted, it also passes the claim's records to the collection of orphans.
func (c *Controller) claims() handler.EventHandler {
	return kubeutil.SplitReplacements(handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q kubeutil.Queue) { c.consider(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q kubeutil.Queue) { c.consider(ctx, e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q kubeutil.Queue) {
			if !c.Within.Has(e.Object.GetNamespace()) {
				return // no pass would forget it again
			}
			c.expectations.observeDeletedClaim(e.Object)
			q.Add(requestOf(e.Object))
			c.reportDeletedClaim(e.Object)
		},
	})
}

// addresses returns a handler that enqueues the claim of an IPAddress. It leaves out an IPAddress
// that this process has just made for the claim, unless the claim was deleted since.
func (c *Controller) addresses() handler.EventHandler {
	return kubeutil.SplitReplacements(handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q kubeutil.Queue) {
			creation, ok := c.expectations.observeAddress(e.Object)
			if _, isDeleted := c.expectations.deletedClaim(nameOf(e.Object)); isDeleted || !ok || creation.isUnsure || e.Object.GetDeletionTimestamp() != nil {
				c.consider(ctx, e.Object, q)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q kubeutil.Queue) { c.consider(ctx, e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q kubeutil.Queue) {
			q.Add(requestOf(e.Object))
			c.expectations.observeDeletedAddress(e.Object)
			c.reportDeletedAddress(e.Object)
		},
	})
}

// consider enqueues the claim of the object's name, if it is not up to date.
func (c *Controller) consider(ctx context.Context, obj client.Object, q kubeutil.Queue) {
	request := requestOf(obj)
	if !c.isUpToDate(ctx, request.NamespacedName) {
		q.Add(request)
	}
}

// reportDeletedClaim notifies the collection of orphans of a claim that was deleted: its own records, by its
// UID, have lost their holder. Other records of its name belong to another claim, or to an
// IPAddress that is about to be stored, and are judged like all others.
func (c *Controller) reportDeletedClaim(claim client.Object) {
	for _, record := range c.Ledger.HeldBy(convert.HolderOfAddressClaim(nameOf(claim))) {
		if record.HolderUID == string(claim.GetUID()) {
			c.Orphans.ReportDeleted(record.HolderUID, record.Name)
		} else {
			c.Orphans.Enqueue(record.Name)
		}
	}
}

// reportDeletedAddress does the same for an IPAddress. Its record is the one that it names, or the one that
// was made for it once it existed.
func (c *Controller) reportDeletedAddress(address client.Object) {
	holder := convert.HolderOfAddressClaim(nameOf(address))
	for _, record := range c.Ledger.HeldBy(holder) {
		if record.Name.Name == address.GetAnnotations()[v1alpha1.AnnotationAllocation] || record.Name == convert.RecordOfHolder(holder, "") {
			c.Orphans.ReportDeleted(record.HolderUID, record.Name)
		} else {
			c.Orphans.Enqueue(record.Name)
		}
	}
}

// records returns a source that enqueues a claim when its record was changed, is lost, or was made
// by other code than this controller, and the claims that wait for a record of their sticky key to be retained.
func (c *Controller) records() source.Source {
	return kubeutil.Listener(c.Ledger.Listen, func(q kubeutil.Queue, change ledger.Change) {
		holder := change.Record.Holder
		if holder.Kind == kind && (change.Kind != ledger.Added || !change.Record.IsStamped()) {
			q.Add(kubeutil.RequestFor(holder.Namespace, holder.Name))
		}
		if sticky := change.Record.Sticky; sticky != "" && change.Kind != ledger.Added {
			c.expectations.unretained.Range(func(name, key any) bool {
				if key == (ipam.Name{Namespace: change.Record.Name.Namespace, Name: sticky}) {
					q.Add(reconcile.Request{NamespacedName: types.NamespacedName(name.(ipam.Name))})
				}
				return true
			})
		}
	})
}

// changes returns a source that enqueues the claims that wait for a class or a pool that changed,
// the claims of a pool that is no longer paused, and the IPAddresses whose pool is missing.
func (c *Controller) changes() source.Source {
	return kubeutil.Subscription(func(ctx context.Context, q kubeutil.Queue) (stop func()) {
		return c.Catalog.Listen(func(e inventory.Change) {
			c.Queue.EnqueueWaiting(q, kind, e)
			c.expectations.claimsWithoutPool.Range(func(name, _ any) bool {
				q.Add(reconcile.Request{NamespacedName: types.NamespacedName(name.(ipam.Name))})
				return true
			})
			if e.Unpaused {
				c.enqueueClaimsOf(ctx, e, q)
			}
		})
	})
}

// enqueueClaimsOf enqueues the claims that name a pool or one of its classes.
func (c *Controller) enqueueClaimsOf(ctx context.Context, e inventory.Change, q kubeutil.Queue) {
	targets := []string{targetKey(string(e.Pool.Kind), e.Pool.Name)}
	for _, class := range e.Classes {
		targets = append(targets, targetKey("IPClass", class))
	}
	for _, target := range targets {
		for _, request := range listRequests(ctx, c.Client, client.MatchingFields{byTarget: target}, client.InNamespace(e.Pool.Namespace)) {
			q.Add(request)
		}
	}
}
