// Package ipclaim keeps IPClaims: it binds those that admission could not, and
// says in the status of all of them where they stand.
package ipclaim

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/absent"
	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/inorder"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/within"
)

// +kubebuilder:rbac:groups=ipam.cadastre.dev,resources=ipclaims,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=ipam.cadastre.dev,resources=ipclaims/status,verbs=update
// +kubebuilder:rbac:groups=ipam.cadastre.dev,resources=ipallocations,verbs=get;list;watch;create;patch;delete

// Controller reconciles IPClaims. Only the leader runs it.
type Controller struct {
	Allocator *allocator.Allocator
	// Client writes, and reads from the cache.
	Client client.Client
	// Live reads without a cache.
	Live client.Reader
	// Workers is how many claims are reconciled at a time.
	Workers int
	// Within are the namespaces whose claims it looks at.
	Within within.Namespaces
}

// SetUp registers the controller. It hears of its own status writes too: a pass
// that worked from an older version than that is made good by the next. Claims are
// told of when changes of records already are: those that are settled by then are
// looked at when their record changes.
func (c *Controller) SetUp(mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named("ipclaim").
		WatchesRawSource(inorder.Sources(c.records(), source.Kind(mgr.GetCache(), &v1alpha1.IPClaim{}, c.claims()))).
		WatchesRawSource(c.catalogue()).
		WatchesRawSource(c.turns()).
		WithOptions(controller.Options{MaxConcurrentReconciles: c.Workers}).
		Complete(c.Within.Limit(reconcile.AsReconciler(c.Client, c)))
}

// scope is what one pass knows of a claim.
type scope struct {
	claim *v1alpha1.IPClaim
	// request is set by read.
	request ipam.Request
	// record is set by bind or verify: the claim's block is held.
	record ipam.Record
}

// Reconcile implements reconcile.ObjectReconciler.
func (c *Controller) Reconcile(ctx context.Context, claim *v1alpha1.IPClaim) (reconcile.Result, error) {
	if isSlim(claim) {
		if c.settled(claim) {
			return reconcile.Result{}, nil
		}
		key := client.ObjectKeyFromObject(claim)
		claim = &v1alpha1.IPClaim{}
		if err := c.Live.Get(ctx, key, claim); err != nil {
			return reconcile.Result{}, absent.Ignore(err)
		}
	}
	if !claim.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil // its record is settled when it is gone
	}
	before := claim.DeepCopy()
	s := &scope{claim: claim}
	err := c.hold(ctx, s)
	retry := settle(s, c.Allocator.Redacted(claim.Namespace, err))
	if err := c.writeStatus(ctx, before, claim); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, retry
}

// hold sees to it that the claim's block is held.
func (c *Controller) hold(ctx context.Context, s *scope) error {
	if err := read(s); err != nil {
		return err
	}
	if s.claim.Spec.AllocationName == "" {
		return c.bind(ctx, s)
	}
	return c.verify(ctx, s)
}
