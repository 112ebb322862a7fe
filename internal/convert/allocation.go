package convert

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Record reads an IPAllocation. The error names the field that cannot be read. Such an object is
// reported, and the record has its name, UID and version, and its block if that can be read: no
// pool hands out the block, because its pool is not known.
func Record(obj *v1alpha1.IPAllocation) (ipam.Record, *field.Error) {
	spec := &obj.Spec
	blocks, err := heldBlocks(spec)
	if err != nil {
		return unreadable(obj), err
	}
	block := blocks[0]
	record := ipam.Record{
		Name:    ipam.Name{Namespace: obj.Namespace, Name: obj.Name},
		UID:     string(obj.UID),
		Version: obj.ResourceVersion,
		Class:   spec.ClassName,
		Holder: ipam.Holder{
			Group: spec.ClaimRef.APIGroup, Kind: spec.ClaimRef.Kind,
			Namespace: obj.Namespace, Name: spec.ClaimRef.Name,
		},
		HolderUID:   string(spec.ClaimRef.UID),
		Purpose:     ipam.Purpose(spec.Purpose),
		Reclaim:     ipam.Reclaim(cmp.Or(spec.ReclaimPolicy, v1alpha1.ReclaimDelete)),
		State:       ipam.State(cmp.Or(spec.State, v1alpha1.AllocationBound)),
		Project:     spec.Project,
		RequestedBy: spec.RequestedBy,
		Sticky:      spec.StickyKey,
		Adopted:     obj.Annotations[v1alpha1.AnnotationAdopted] != "",
		PoolUnknown: obj.Annotations[v1alpha1.AnnotationPoolUnknown] != "",
		Terminating: !obj.DeletionTimestamp.IsZero(),
	}
	setBlocks(&record, blocks)
	record.Gateway = GatewayGiven(spec.Gateway)
	if spec.ReleaseAfter != nil {
		record.ReleaseAfter = spec.ReleaseAfter.Time
	}
	if record.Purpose == ipam.PurposePool { // the holder is not in the record's namespace
		record.Holder.Namespace = spec.ClaimRef.Namespace
	}
	if record.Pool, err = placeOf(spec, record.Holder.Namespace, block); err != nil {
		return unreadable(obj), err
	}
	return record, nil
}

// heldBlocks reads the blocks of a record, which are of one family, and no two of which overlap.
func heldBlocks(spec *v1alpha1.IPAllocationSpec) ([]netip.Prefix, *field.Error) {
	first, err := Block(field.NewPath("spec", "cidr"), spec.CIDR)
	if err != nil {
		return nil, err
	}
	blocks := []netip.Prefix{first}
	for i, text := range spec.AdditionalCIDRs {
		path := field.NewPath("spec", "additionalCIDRs").Index(i)
		block, err := Block(path, text)
		switch {
		case err != nil:
			return nil, err
		case block.Addr().Is4() != first.Addr().Is4():
			return nil, field.Invalid(path, text, fmt.Sprintf("is not of the family of %s: remove it", first))
		case slices.ContainsFunc(blocks, block.Overlaps):
			return nil, field.Invalid(path, text, "overlaps another block of the record: remove it")
		}
		blocks = append(blocks, block)
	}
	return blocks, nil
}

// placeOf returns the pool or the routing domain of a block. A LocalIPPool, or a namespace's
// routing domain, is in the holder's namespace.
func placeOf(spec *v1alpha1.IPAllocationSpec, namespace string, block netip.Prefix) (ipam.PoolKey, *field.Error) {
	path := field.NewPath("spec", "poolRef")
	if spec.PoolRef == nil {
		if spec.RoutingDomain == "" {
			return ipam.PoolKey{}, field.Required(path, "set it or spec.routingDomain, to locate the block")
		}
		return ipam.LocalDomainNamed(namespace, spec.RoutingDomain, ipam.FamilyOf(block)), nil
	}
	switch kind := ipam.PoolKind(spec.PoolRef.Kind); {
	case !kind.IsPool() && kind != "":
		return ipam.PoolKey{}, field.NotSupported(path.Child("kind"), kind, []ipam.PoolKind{ipam.PoolKindIPPool, ipam.PoolKindLocalIPPool, ipam.PoolKindGlobalInClusterIPPool, ipam.PoolKindInClusterIPPool})
	case spec.PoolRef.Name == "":
		return ipam.PoolKey{}, field.Required(path.Child("name"), "set it, to locate the block")
	case kind.IsNamespaced() && namespace == "":
		return ipam.PoolKey{}, field.Required(field.NewPath("spec", "claimRef", "namespace"), fmt.Sprintf("set it to the namespace of the %s", kind))
	}
	return PoolKey(namespace, v1alpha1.PoolReference(*spec.PoolRef)), nil
}

// unreadable returns the fields that are read of any IPAllocation. A block that is not in canonical
// form is a block too.
func unreadable(obj *v1alpha1.IPAllocation) ipam.Record {
	record := ipam.Record{Name: ipam.Name{Namespace: obj.Namespace, Name: obj.Name}, UID: string(obj.UID), Version: obj.ResourceVersion}
	var blocks []netip.Prefix
	for _, text := range append([]string{obj.Spec.CIDR}, obj.Spec.AdditionalCIDRs...) {
		block, err := netip.ParsePrefix(text)
		if addr := block.Addr(); addr.Is4In6() && block.Bits() >= 96 {
			block = netip.PrefixFrom(addr.Unmap(), block.Bits()-96)
		}
		if err == nil {
			blocks = append(blocks, block.Masked())
		}
	}
	setBlocks(&record, blocks)
	return record
}

// setBlocks writes blocks, of which there may be none, into a record.
func setBlocks(record *ipam.Record, blocks []netip.Prefix) {
	if len(blocks) > 0 {
		record.Block = blocks[0]
	}
	if len(blocks) > 1 {
		record.AdditionalBlocks = blocks[1:]
	}
}

// Allocation returns the IPAllocation of a record: the inverse of Record. It carries the finalizer
// that keeps the block held.
func Allocation(r ipam.Record) *v1alpha1.IPAllocation {
	obj := &v1alpha1.IPAllocation{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.Name.Namespace, Name: r.Name.Name,
			UID: types.UID(r.UID), ResourceVersion: r.Version,
			Finalizers: []string{v1alpha1.FinalizerHeld},
		},
		Spec: v1alpha1.IPAllocationSpec{
			CIDR: r.Block.String(), IPFamily: v1alpha1.IPFamily(ipam.FamilyOf(r.Block)),
			ClassName: r.Class,
			ClaimRef: v1alpha1.ClaimReference{
				APIGroup: r.Holder.Group, Kind: r.Holder.Kind, Name: r.Holder.Name,
				UID: types.UID(r.HolderUID),
			},
			Purpose:       v1alpha1.AllocationPurpose(r.Purpose),
			ReclaimPolicy: v1alpha1.ReclaimPolicy(r.Reclaim),
			State:         v1alpha1.AllocationState(r.State),
			ReleaseAfter:  timeOrNil(r.ReleaseAfter),
			Project:       r.Project,
			RequestedBy:   RequestedBy(r.RequestedBy),
			StickyKey:     r.Sticky,
		},
	}
	for _, block := range r.AdditionalBlocks {
		obj.Spec.AdditionalCIDRs = append(obj.Spec.AdditionalCIDRs, block.String())
	}
	if r.Holder.IsPool() {
		obj.Spec.ClaimRef.Namespace = r.Holder.Namespace
	}
	if r.Gateway.IsValid() {
		obj.Spec.Gateway = r.Gateway.String()
	}
	if r.Adopted {
		metav1.SetMetaDataAnnotation(&obj.ObjectMeta, v1alpha1.AnnotationAdopted, "true")
	}
	if r.PoolUnknown {
		metav1.SetMetaDataAnnotation(&obj.ObjectMeta, v1alpha1.AnnotationPoolUnknown, "true")
	}
	if r.Pool.Kind == ipam.PoolKindRoutingDomain {
		obj.Spec.RoutingDomain = r.Pool.Name
	} else {
		obj.Spec.PoolRef = new(v1alpha1.RecordPoolReference(*PoolReference(r.Pool)))
	}
	return obj
}

// GatewayGiven reads the gateway that, according to an object, was handed out with an address: the
// zero Addr if there is none, or no valid one. The address is held in any case.
func GatewayGiven(text string) netip.Addr {
	gateway, _ := netip.ParseAddr(text)
	return gateway.Unmap()
}

// RequestedBy returns a user's name, cut to the length that a record may have. Kubernetes does not
// bound the names of users; the schema of a record counts characters, not bytes.
func RequestedBy(user string) string {
	count := 0
	for at := range user {
		if count == v1alpha1.MaxRequestedBy {
			return user[:at]
		}
		count++
	}
	return user
}

// Address returns the bare address of a block that is a single address, else the empty string.
func Address(block netip.Prefix) string {
	if !block.IsSingleIP() {
		return ""
	}
	return block.Addr().String()
}

func timeOrNil(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t}
}

// RecordOf reads an object that a watch of IPAllocations delivers.
func RecordOf(obj any) (ipam.Record, error) {
	allocation, ok := obj.(*v1alpha1.IPAllocation)
	if !ok {
		return ipam.Record{}, fmt.Errorf("%T is not an IPAllocation", obj)
	}
	record, err := Record(allocation)
	if err != nil {
		return record, err
	}
	return record, nil
}

// Cluster API's claims as holders.
const (
	AddressClaimGroup = "ipam.cluster.x-k8s.io"
	AddressClaimKind  = "IPAddressClaim"
)

// HolderOfClaim returns an IPClaim as a holder.
func HolderOfClaim(claim ipam.Name) ipam.Holder {
	return ipam.Holder{Group: v1alpha1.GroupVersion.Group, Kind: "IPClaim", Namespace: claim.Namespace, Name: claim.Name}
}

// HolderOfAddressClaim returns one of Cluster API's IPAddressClaims as a holder.
func HolderOfAddressClaim(claim ipam.Name) ipam.Holder {
	return ipam.Holder{Group: AddressClaimGroup, Kind: AddressClaimKind, Namespace: claim.Namespace, Name: claim.Name}
}

// HolderOfPool returns a pool as the holder of the pool's CIDR.
func HolderOfPool(pool ipam.PoolKey) ipam.Holder {
	group := v1alpha1.GroupVersion.Group
	if pool.Kind.IsInCluster() {
		group = AddressClaimGroup
	}
	return ipam.Holder{Group: group, Kind: string(pool.Kind), Namespace: pool.Namespace, Name: pool.Name}
}

// PoolOf returns the pool that is a holder: the inverse of HolderOfPool.
func PoolOf(h ipam.Holder) ipam.PoolKey {
	return ipam.PoolKey{Kind: ipam.PoolKind(h.Kind), Namespace: h.Namespace, Name: h.Name}
}

// RecordOfPool returns the name of a pool's own record, which lies in the operator's namespace:
// ippool.<name> or localippool.<namespace>.<name>. The name of a namespace has no dot, so no two
// pools have the same. If that is too long for a name, a digest follows the kind, with a separator
// that none of the other names has there.
func RecordOfPool(namespace string, pool ipam.PoolKey) ipam.Name {
	if full := strings.ToLower(string(pool.Kind)) + "." + dotted(pool); len(full) <= longestName {
		return ipam.Name{Namespace: namespace, Name: full}
	}
	return digestedName(namespace, pool)
}

// RecordOfEdit returns the name of the own record that an edit of a stored pool makes of its blocks:
// one with a digest.
func RecordOfEdit(namespace string, pool ipam.Pool) ipam.Name {
	return digestedName(namespace, pool.Key, pool.Spec.UID, fmt.Sprint(pool.Blocks()), pool.Home.String())
}

func digestedName(namespace string, pool ipam.PoolKey, parts ...string) ipam.Name {
	kind := strings.ToLower(string(pool.Kind))
	full := kind + "-" + digest(20, append([]string{kind, dotted(pool)}, parts...)...) + "." + dotted(pool)
	return ipam.Name{Namespace: namespace, Name: strings.TrimRight(full[:min(len(full), longestName)], ".-")}
}

// dotted returns the name of a pool, with the namespace if there is one.
func dotted(pool ipam.PoolKey) string {
	if pool.Namespace == "" {
		return pool.Name
	}
	return pool.Namespace + "." + pool.Name
}

// RecordOfHolder returns the name of the record of a claim that exists: always the same, so that a
// restarted or second leader finds the record instead of making another.
func RecordOfHolder(holder ipam.Holder, uid string) ipam.Name {
	return RecordOfAttempt(holder, digest(5, holder.Group, holder.Kind, holder.Namespace, holder.Name, uid))
}

// RecordOfAttempt returns the name of the record of one attempt to serve a claim that does not
// exist yet. The suffix has eight characters, and belongs to this attempt alone.
func RecordOfAttempt(holder ipam.Holder, suffix string) ipam.Name {
	return ipam.Name{Namespace: holder.Namespace, Name: prefixOf(holder.Name) + "-" + suffix}
}

// prefixOf returns a name, cut so that there is room for a suffix of nine characters in a name of
// 253. The result ends with a character with which a name may end: "." in front of "-" is not valid
// (RFC 1123).
func prefixOf(name string) string {
	if len(name) <= longestName-9 {
		return name
	}
	return strings.TrimRight(name[:longestName-9], ".-")
}

// longestName is the greatest length of the name of an object (RFC 1123, as Kubernetes reads it).
const longestName = 253

// digest returns the first bytes of the SHA-256 of some strings, as part of a name: their number is
// a multiple of 5, and each 5 make 8 characters.
func digest(bytes int, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:bytes]))
}

// objectName returns an error for a string that cannot be the name of an object (RFC 1123): no
// object of that name will ever exist.
func objectName(path *field.Path, name string) field.ErrorList {
	if wrong := validation.NameIsDNSSubdomain(name, false); len(wrong) > 0 {
		return field.ErrorList{field.Invalid(path, name, strings.Join(wrong, "; "))}
	}
	return nil
}
