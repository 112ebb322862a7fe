package restore

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
)

// stored holds all objects of address management in the API server.
type stored struct {
	claims        v1alpha1.IPClaimList
	pools         v1alpha1.IPPoolList
	locals        v1alpha1.LocalIPPoolList
	records       v1alpha1.IPAllocationList
	addressClaims ipamv1.IPAddressClaimList
	addresses     ipamv1.IPAddressList
	clusters      clusterv1.ClusterList
}

func (w *world) stored(ctx context.Context) (*stored, error) {
	s := &stored{}
	// Objects that are listed later may have changed since: the caller asks until all agrees.
	return s, w.list(ctx, &s.records, &s.claims, &s.pools, &s.locals, &s.addressClaims, &s.addresses, &s.clusters)
}

// holder represents an object that reports that it holds a block.
type holder struct {
	uid, block, record string
	records            int
}

// wrong returns the contradictions: every holder has one record with its block, every record a
// holder, no two blocks of a pool overlap, each pool counts its recorded blocks, and each Cluster owns
// a claim for each of its blocks. Claims and pools in waiting, by name, may wait, and claims for such a
// pool.
func (w *world) wrong(ctx context.Context, waiting map[string]bool) ([]string, error) {
	s, err := w.stored(ctx)
	if err != nil {
		return nil, err
	}
	holders, wrong := s.holders(waiting)
	wrong = append(wrong, s.unheld(holders)...)
	for name, h := range holders {
		if h.records != 1 {
			wrong = append(wrong, fmt.Sprintf("%s with %s has %d records", name, h.block, h.records))
		}
	}
	wrong = append(wrong, s.unclaimed()...)
	wrong = append(wrong, s.unclaimedNetworks()...)
	wrong = append(wrong, s.overlaps()...)
	wrong = append(wrong, s.miscounts(waiting)...)
	return wrong[:min(len(wrong), 10)], nil
}

// holders returns the objects that report that they hold a block, and those that should and do not.
func (s *stored) holders(waiting map[string]bool) (map[string]*holder, []string) {
	holders, wrong := map[string]*holder{}, []string{}
	for _, p := range append(asPools(s.pools.Items), asPools(s.locals.Items)...) {
		name := nameOf(p)
		if waiting[name] {
			continue
		}
		holders[name] = &holder{uid: string(p.GetUID()), block: p.PoolSpec().CIDR}
		if phase := p.PoolStatus().Phase; phase != v1alpha1.PoolReady && phase != v1alpha1.PoolExhausted {
			wrong = append(wrong, fmt.Sprintf("%s is %s: %s", name, phase, said(p.PoolStatus().Conditions)))
		}
	}
	for _, c := range s.claims.Items {
		name := "IPClaim/" + c.Namespace + "/" + c.Name
		switch {
		case c.Spec.AllocationName != "":
			holders[name] = &holder{uid: string(c.UID), block: c.Spec.CIDR, record: c.Spec.AllocationName}
			if c.Status.Phase != v1alpha1.ClaimBound || c.Status.AllocatedCIDR != c.Spec.CIDR {
				wrong = append(wrong, name+" is "+string(c.Status.Phase)+" with "+c.Status.AllocatedCIDR+" instead of "+c.Spec.CIDR)
			}
		case !waiting[name] && !waiting[poolOf(&c)]:
			wrong = append(wrong, fmt.Sprintf("%s is %s: %s", name, c.Status.Phase, said(c.Status.Conditions)))
		}
	}
	addresses := map[string]string{}
	for _, a := range s.addresses.Items {
		addresses[a.Namespace+"/"+a.Name] = a.Spec.Address
	}
	for _, c := range s.addressClaims.Items {
		name := "IPAddressClaim/" + c.Namespace + "/" + c.Name
		address := addresses[c.Namespace+"/"+c.Name]
		switch {
		case address != "" && c.Status.AddressRef.Name == c.Name:
			holders[name] = &holder{uid: string(c.UID), block: address + "/32"}
		case !waiting[name]:
			wrong = append(wrong, fmt.Sprintf("%s has %q: %s, deleted %v", name, address, said(c.Status.Conditions), c.DeletionTimestamp))
		}
	}
	return holders, wrong
}

// poolOf returns the pool that a claim names.
func poolOf(claim *v1alpha1.IPClaim) string {
	switch ref := claim.Spec.PoolRef; {
	case ref == nil:
		return ""
	case ref.Kind == v1alpha1.PoolKindLocalIPPool:
		return "LocalIPPool/" + claim.Namespace + "/" + ref.Name
	default:
		return "IPPool//" + ref.Name
	}
}

// said returns the reason and the message of the condition Ready of an object.
func said(conditions []metav1.Condition) string {
	if ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); ready != nil {
		return ready.Reason + ": " + ready.Message
	}
	return "nothing"
}

func asPools[T any, P interface {
	*T
	v1alpha1.Pool
}](items []T) []v1alpha1.Pool {
	var pools []v1alpha1.Pool
	for i := range items {
		p := P(&items[i])
		p.GetObjectKind().SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kindOf(p)))
		pools = append(pools, p)
	}
	return pools
}

func kindOf(p v1alpha1.Pool) string {
	if p.GetNamespace() == "" {
		return string(v1alpha1.PoolKindIPPool)
	}
	return string(v1alpha1.PoolKindLocalIPPool)
}

// unheld returns records that are not their holder's.
func (s *stored) unheld(holders map[string]*holder) []string {
	var wrong []string
	for _, r := range s.records.Items {
		ref, namespace := r.Spec.ClaimRef, r.Namespace
		if r.Spec.Purpose != "Claim" {
			namespace = ref.Namespace
		}
		h := holders[ref.Kind+"/"+namespace+"/"+ref.Name]
		if h == nil || h.block != r.Spec.CIDR || ref.UID != "" && string(ref.UID) != h.uid || h.record != "" && h.record != r.Name {
			wrong = append(wrong, fmt.Sprintf("record %s/%s of %s %s/%s with %s is not its holder's", r.Namespace, r.Name, ref.Kind, namespace, ref.Name, r.Spec.CIDR))
			continue
		}
		h.records++
	}
	return wrong
}

// unclaimed returns IPAddresses that no claim has, or is in conflict about.
func (s *stored) unclaimed() []string {
	claims := map[string]bool{}
	for _, c := range s.addressClaims.Items {
		claims[c.Namespace+"/"+c.Name] = true
	}
	var wrong []string
	for _, a := range s.addresses.Items {
		if !claims[a.Namespace+"/"+a.Name] {
			wrong = append(wrong, fmt.Sprintf("IPAddress %s/%s with %s has no claim: made at %s, finalizers %v, owners %v",
				a.Namespace, a.Name, a.Spec.Address, a.CreationTimestamp.UTC().Format(time.TimeOnly), a.Finalizers, a.OwnerReferences))
		}
	}
	return wrong
}

// space returns the space in which a record's block excludes others.
func space(r v1alpha1.IPAllocation) string {
	switch ref := r.Spec.PoolRef; {
	case ref == nil:
		return "domain " + r.Spec.RoutingDomain + " of " + r.Spec.ClaimRef.Namespace
	case ref.Kind == v1alpha1.PoolKindLocalIPPool && r.Namespace == cluster.Namespace:
		return "LocalIPPool/" + r.Spec.ClaimRef.Namespace + "/" + ref.Name
	case ref.Kind == v1alpha1.PoolKindLocalIPPool:
		return "LocalIPPool/" + r.Namespace + "/" + ref.Name
	default:
		return "IPPool//" + ref.Name
	}
}

// overlaps returns the holders that hold one block between them. Sorted, they would be neighbors.
func (s *stored) overlaps() []string {
	blocksBySpace := map[string][]netip.Prefix{}
	for _, r := range s.records.Items {
		blocksBySpace[space(r)] = append(blocksBySpace[space(r)], netip.MustParsePrefix(r.Spec.CIDR))
	}
	var wrong []string
	for where, blocks := range blocksBySpace {
		slices.SortFunc(blocks, netip.Prefix.Compare)
		for i := 1; i < len(blocks); i++ {
			if blocks[i].Overlaps(blocks[i-1]) {
				wrong = append(wrong, fmt.Sprintf("TWO HOLDERS in %s: %s and %s", where, blocks[i-1], blocks[i]))
			}
		}
	}
	return wrong
}

// miscounts returns pools whose capacity differs from the records. Nothing is withheld of the pools
// here, but for the edges of the one with a network.
func (s *stored) miscounts(waiting map[string]bool) []string {
	allocated := map[string]int{}
	for _, r := range s.records.Items {
		allocated[space(r)] += 1 << (32 - netip.MustParsePrefix(r.Spec.CIDR).Bits())
	}
	var wrong []string
	for _, p := range append(asPools(s.pools.Items), asPools(s.locals.Items)...) {
		if waiting[nameOf(p)] {
			continue
		}
		capacity := p.PoolStatus().Capacity
		if capacity == nil {
			wrong = append(wrong, p.GetName()+" has no capacity")
			continue
		}
		name := nameOf(p)
		total, withheld := number(capacity.Total), number(capacity.Withheld)
		if number(capacity.Allocated) != allocated[name] || number(capacity.Available) != total-withheld-allocated[name] {
			wrong = append(wrong, fmt.Sprintf("%s says %+v, and %d are recorded", name, *capacity, allocated[name]))
		}
	}
	return wrong
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return -1
	}
	return n
}
