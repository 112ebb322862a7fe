package security

import (
	"context"
	"slices"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// everythingIsDone lets the operator do all that it can: it needs every right for something.
func (w *world) everythingIsDone() {
	w.Namespace("all")
	waits := build.Pool("all-child").Child("all-root", 29).Obj()
	w.Created(waits) // no parent yet
	w.Created(build.Class("all").Length(32).Obj(), build.Class("all-kept").Length(32).With(func(s *v1alpha1.IPClassSpec) {
		s.ReclaimPolicy, s.RetentionPeriod = v1alpha1.ReclaimRetain, &metav1.Duration{Duration: 3600e9}
	}).Obj())
	w.Pools(build.Pool("all-root").CIDR("10.8.0.0/28").Classes("all", "all-kept").Obj())
	w.Ready(waits)
	w.aClaimWaits()
	w.aBlockIsKept()
	w.Created(build.NamespaceOf("others", "all-others"))
	w.Pools(build.Pool("all-owned").CIDR("10.8.1.0/24").With(func(s *v1alpha1.IPPoolSpec) { s.Project = "others" }).Obj())
	asked := build.Claim("all", "grant").Pool("all-owned").Length(32).Obj()
	w.Created(asked) // an administrator may use it
	w.Bound(asked)
	w.clusterAPIComes()
	w.addressesAreMended()
	w.Created(build.Claim("all", "nothing").Class("no-such-class").Obj())
	w.Created(build.Claim("all", "nowhere").Pool("no-such-pool").Length(32).Obj())

	suite.Must(w, w.DeleteAllOf(w.Context(), &v1alpha1.IPClaim{}, client.InNamespace("all")))
	w.Deleted(waits)
	w.Await("the child is gone", func(ctx context.Context) bool {
		return client.IgnoreNotFound(w.Get(ctx, client.ObjectKeyFromObject(waits), waits)) == nil && waits.DeletionTimestamp != nil || w.Get(ctx, client.ObjectKeyFromObject(waits), waits) != nil
	})
	for _, m := range w.Managers { // each leads once
		suite.Must(w, m.Restart(w.Context()))
	}
}

// aClaimWaits makes a claim that the leader binds, when another is deleted.
func (w *world) aClaimWaits() {
	large := build.Claim("all", "large").Class("all").With(func(s *v1alpha1.IPClaimSpec) { s.PrefixLength = new(int32(29)) }).Obj()
	late := build.Claim("all", "late").Class("all").With(func(s *v1alpha1.IPClaimSpec) { s.PrefixLength = new(int32(29)) }).Obj()
	w.Created(large, late)
	w.Deleted(large)
	w.Bound(late)
	w.Deleted(late)
}

// aBlockIsKept retains a block, and lets a claim of that name take it again.
func (w *world) aBlockIsKept() {
	kept := build.Claim("all", "kept").Class("all-kept").Obj()
	w.Created(kept)
	block := kept.Spec.CIDR
	w.Bound(kept)
	w.Deleted(kept)
	record := &v1alpha1.IPAllocation{}
	w.Await("the block is retained", func(ctx context.Context) bool {
		return w.Get(ctx, client.ObjectKey{Namespace: "all", Name: kept.Spec.AllocationName}, record) == nil && record.Spec.State == v1alpha1.AllocationRetained
	})
	again := build.Claim("all", "kept").Class("all-kept").Obj()
	w.Created(again)
	if again.Spec.CIDR != block {
		w.Errorf("kept %s, and given %s", block, again.Spec.CIDR)
	}
	w.Bound(again)
}

// clusterAPIComes creates claims of Cluster API that are served, from a namespace's own pool too.
func (w *world) clusterAPIComes() {
	suite.Must(w, w.InstallClusterAPICRDs(w.Context()))
	local := build.Pool("all-local").CIDR("10.8.2.0/24").In("all")
	w.Created(local)
	asks := []*ipamv1.IPAddressClaim{
		build.AddressClaim("all", "theirs").Pool("all-owned").Obj(),
		build.AddressClaim("all", "theirs-local").From(v1alpha1.GroupVersion.Group, "LocalIPPool", "all-local").Obj(),
	}
	for _, claim := range asks {
		w.Created(claim)
		w.Served(claim)
	}
	for _, claim := range asks {
		w.Deleted(claim)
		w.Gone(claim)
	}
	w.letGoOf(local)
	w.aClaimIsToldOf()
}

// aClaimIsToldOf makes an IPAddressClaim that waits, and awaits the event about it.
func (w *world) aClaimIsToldOf() {
	claim := build.AddressClaim("all", "in-vain").Pool("nowhere").Obj()
	w.Created(claim)
	w.Await("an event shows why the IPAddressClaim waits", func(ctx context.Context) bool {
		events := &eventsv1.EventList{}
		return w.List(ctx, events, client.InNamespace("all")) == nil &&
			slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool { return e.Regarding.UID == claim.UID })
	})
	w.Deleted(claim)
	w.Gone(claim)
}
