package convert

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Cluster API's claims as holders.
const (
	AddressClaimGroup = "ipam.cluster.x-k8s.io"
	AddressClaimKind  = "IPAddressClaim"
)

// HolderOfClaim is an IPClaim as a holder.
func HolderOfClaim(claim ipam.Name) ipam.Holder {
	return ipam.Holder{Group: v1alpha1.GroupVersion.Group, Kind: "IPClaim", Namespace: claim.Namespace, Name: claim.Name}
}

// HolderOfAddressClaim is one of Cluster API's IPAddressClaims as a holder.
func HolderOfAddressClaim(claim ipam.Name) ipam.Holder {
	return ipam.Holder{Group: AddressClaimGroup, Kind: AddressClaimKind, Namespace: claim.Namespace, Name: claim.Name}
}

// HolderOfPool is a pool as the holder of its own CIDR.
func HolderOfPool(pool ipam.PoolKey) ipam.Holder {
	return ipam.Holder{Group: v1alpha1.GroupVersion.Group, Kind: string(pool.Kind), Namespace: pool.Namespace, Name: pool.Name}
}

// PoolOf is the pool that is a holder: the inverse of HolderOfPool.
func PoolOf(h ipam.Holder) ipam.PoolKey {
	return ipam.PoolKey{Kind: ipam.PoolKind(h.Kind), Namespace: h.Namespace, Name: h.Name}
}

// RecordOfPool is the name of a pool's own record, which lies in the operator's
// namespace: ippool.<name> or localippool.<namespace>.<name>. The name of a namespace
// has no dot, so no two pools have the same. Where that is too long for a name, it
// begins with a digest instead, and with what none of the others begins with.
func RecordOfPool(namespace string, pool ipam.PoolKey) ipam.Name {
	kind, name := "ippool", pool.Name
	if pool.Kind == ipam.PoolKindLocalIPPool {
		kind, name = "localippool", pool.Namespace+"."+pool.Name
	}
	full := kind + "." + name
	if len(full) > longestName {
		full = kind + "-" + digest(20, kind, name) + "." + name
		full = strings.TrimRight(full[:longestName], ".-")
	}
	return ipam.Name{Namespace: namespace, Name: full}
}

// RecordOfHolder is the name of the record of a claim that exists: always the same, so that a
// restarted or second leader finds the record instead of making another.
func RecordOfHolder(holder ipam.Holder, uid string) ipam.Name {
	return RecordOfAttempt(holder, digest(5, holder.Group, holder.Kind, holder.Namespace, holder.Name, uid))
}

// RecordOfAttempt is the name of the record of one attempt to serve a claim that does not
// exist yet. The suffix has eight characters, and is the attempt's own.
func RecordOfAttempt(holder ipam.Holder, suffix string) ipam.Name {
	return ipam.Name{Namespace: holder.Namespace, Name: prefixOf(holder.Name) + "-" + suffix}
}

// prefixOf leaves room for a suffix of nine characters in a name of 253. It ends with
// a character with which a name may end: "." in front of "-" is not valid (RFC 1123).
func prefixOf(name string) string {
	if len(name) <= longestName-9 {
		return name
	}
	return strings.TrimRight(name[:longestName-9], ".-")
}

// longestName is how long the name of an object may be (RFC 1123, as Kubernetes
// reads it).
const longestName = 253

// digest is a name's worth of the SHA-256 of some strings: of so many bytes, a
// multiple of 5, which make 8 characters each.
func digest(bytes int, of ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(of, "\x00")))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:bytes]))
}
