package inventory

import (
	"net/netip"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// MayRetain is a *ipam.PolicyError where a claim may not have its block retained: its
// class does not allow it, or the pool that its block, recorded under the name, is from.
func (c *Catalogue) MayRetain(req ipam.Request, recorded string) error {
	of := "IPClass " + req.Class
	if req.Class != "" {
		if class, _ := c.Class(req.Class); class.AllowRetain {
			return nil
		}
	} else {
		key := req.Pool
		if record, ok := c.ledger.Record(ipam.Name{Namespace: req.Claim.Namespace, Name: recorded}); ok {
			key = record.Pool
		}
		if pool, _ := c.Pool(key); pool.AllowRetain {
			return nil
		}
		of = key.String()
	}
	return &ipam.PolicyError{Field: "spec.reclaimPolicy", Value: ipam.ReclaimRetain,
		Remedy: of + " does not allow it (allowRetain): leave it Delete"}
}

// Keeping is for how long class and pool have the block of a record kept.
func (c *Catalogue) Keeping(record ipam.Record) ipam.Keeping {
	var class *ipam.Class
	var pool *ipam.Pool
	if entry, ok := c.Class(record.Class); ok && record.Class != "" {
		class = &entry.Class
	}
	if p, ok := c.Pool(record.Pool); ok {
		pool = &p
	}
	return ipam.KeepingOf(class, pool)
}

// TermsOfAddress are those on which an address is recorded that an IPAddress has already.
func (c *Catalogue) TermsOfAddress(addr netip.Addr, class string) ipam.Terms {
	terms := ipam.Terms{Class: class, Block: netip.PrefixFrom(addr, addr.BitLen()), Length: addr.BitLen(), Reclaim: ipam.ReclaimDelete}
	if known, ok := c.Class(class); ok {
		terms.Reclaim = known.Reclaim
	}
	return terms
}
