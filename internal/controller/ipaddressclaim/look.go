package ipaddressclaim

import (
	"cmp"
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/absent"
	"github.com/cadastre-dev/cadastre/internal/adapt"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// look reads the claim, the IPAddress of its name, and the Cluster.
func (c *Controller) look(ctx context.Context, key types.NamespacedName) (*scope, error) {
	s := &scope{name: ipam.Name{Namespace: key.Namespace, Name: key.Name}}
	if last, ok := c.letGo.Load(s.name); ok { // before the cache is read, which forgets it after
		s.letGo = last.(letting)
	}
	claim, address := &ipamv1.IPAddressClaim{}, &ipamv1.IPAddress{}
	switch found, err := c.find(ctx, key, claim); {
	case err != nil:
		return nil, err
	case found:
		s.claim = claim
		s.request, _ = adapt.AddressRequest(parts(claim)) // bind says what is wrong with it
		if s.cluster, err = clusterOf(ctx, c.Client, claim); err != nil {
			return nil, err
		}
	}
	switch found, err := c.find(ctx, key, address); {
	case err != nil:
		return nil, err
	case found:
		s.address = address
	}
	return s, nil
}

func (c *Controller) find(ctx context.Context, key types.NamespacedName, into client.Object) (bool, error) {
	err := c.Client.Get(ctx, key, into)
	if err != nil {
		return false, absent.Ignore(err)
	}
	return true, nil
}

// step is what a pass does.
type step int

const (
	leaveAlone step = iota
	// serve gives the claim an address, or repairs what it has.
	serve
	// release gives back the address of a claim that is being deleted.
	release
	// keepAddress records the block of an IPAddress that has no claim: somebody
	// made it before the claim, or is moving both.
	keepAddress
	// dropAddress lets go of an IPAddress that has no claim any more.
	dropAddress
)

// next decides what there is to do.
func (s *scope) next() step {
	switch {
	case s.claim == nil && s.address == nil:
		return leaveAlone
	case s.claim == nil && !isOurs(s.address.Spec.PoolRef):
		return leaveAlone
	case s.claim == nil && !s.address.DeletionTimestamp.IsZero():
		return dropAddress
	case s.claim == nil:
		return keepAddress
	case !isOurs(s.claim.Spec.PoolRef):
		return leaveAlone
	case !s.claim.DeletionTimestamp.IsZero():
		return release
	}
	return serve
}

func isOurs(ref ipamv1.IPPoolReference) bool { return adapt.IsOurs(ref.APIGroup, ref.Kind) }

// mustWait says whether nothing may be done for the claim at the moment: its
// Cluster is missing or paused, or the claim or its pool is (contract, "Normal
// IPAddressClaim" 2, "Deleted IPAddressClaim" 1). Nobody waits for the Cluster of
// a claim that is being deleted: it is often the first to go.
func (c *Controller) mustWait(s *scope) bool {
	if annotations.HasPaused(s.claim) {
		return true
	}
	if s.cluster == nil && clusterName(s.claim) != "" && s.claim.DeletionTimestamp.IsZero() {
		return true
	}
	return s.cluster != nil && annotations.IsPaused(s.cluster, s.cluster) || c.poolPaused(s)
}

// poolPaused says whether the pool is that the claim names, or has its address
// from.
func (c *Controller) poolPaused(s *scope) bool {
	if pool, ok := c.Allocator.Catalogue().Pool(s.request.Pool); ok && pool.Paused {
		return true
	}
	for _, record := range c.Allocator.Ledger().HeldBy(s.holder()) {
		if pool, ok := c.Allocator.Catalogue().Pool(record.Pool); ok && pool.Paused {
			return true
		}
	}
	return false
}

// clusterName is the name of the claim's Cluster: spec.clusterName, or the label
// that came before it; empty where there is none.
func clusterName(claim *ipamv1.IPAddressClaim) string {
	return cmp.Or(claim.Spec.ClusterName, claim.Labels[clusterv1.ClusterNameLabel])
}

// clusterOf is the claim's Cluster, nil where it has none or it is missing.
func clusterOf(ctx context.Context, reader client.Reader, claim *ipamv1.IPAddressClaim) (*clusterv1.Cluster, error) {
	name := clusterName(claim)
	if name == "" {
		return nil, nil
	}
	cluster := &clusterv1.Cluster{}
	err := reader.Get(ctx, client.ObjectKey{Namespace: claim.Namespace, Name: name}, cluster)
	if absent.Is(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for Cluster %s/%s: %w", claim.Namespace, name, err)
	}
	return cluster, nil
}

// parts are what counts of a claim.
func parts(claim *ipamv1.IPAddressClaim) adapt.AddressClaim {
	ref := claim.Spec.PoolRef
	return adapt.AddressClaim{
		Namespace: claim.Namespace, Name: claim.Name,
		PoolGroup: ref.APIGroup, PoolKind: ref.Kind, PoolName: ref.Name,
		Annotations: claim.Annotations,
	}
}
