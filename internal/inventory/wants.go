package inventory

import "github.com/cadastre-dev/cadastre/internal/ipam"

// Wants is what a request would take, and from which pools, whether or not they are
// ready. Without pools something is missing or not allowed.
func (c *Catalogue) Wants(req ipam.Request) ipam.Wants {
	named, err := c.named(req)
	if err != nil || named.missing != nil {
		return ipam.Wants{}
	}
	class := named.class
	req = named.request
	terms, err := ipam.Fold(req, class, named.pools)
	if err != nil {
		return ipam.Wants{}
	}
	fitting, _, err := terms.Fitting(named.pools)
	if err != nil || req.Child != (ipam.PoolKey{}) && allOfParent(terms, fitting[0]) != nil {
		return ipam.Wants{}
	}
	wants := ipam.Wants{Length: terms.Length, Account: ipam.Account{Project: req.Tenant.Project, Class: terms.Class}}
	if class != nil {
		wants.Account.ClassLimit = class.Limit
	}
	for _, pool := range fitting {
		wants.Pools = append(wants.Pools, pool.Key)
	}
	return wants
}

// Shared resolves requests many of which are alike: each kind is resolved once, by what
// the catalogue knows then. It is for one goroutine.
type Shared struct {
	catalogue *Catalogue
	known     map[shape]ipam.Wants
}

// Shared begins to resolve many requests.
func (c *Catalogue) Shared() *Shared {
	return &Shared{catalogue: c, known: map[shape]ipam.Wants{}}
}

// shape is what the wants of a request follow from.
type shape struct {
	class, selector string
	pool, child     ipam.PoolKey
	namespace       string
	family          ipam.Family
	length          int
	granted, single bool
}

// Wants is Catalogue.Wants.
func (s *Shared) Wants(req ipam.Request) ipam.Wants {
	if req.Block.IsValid() || req.Selects != nil && req.Selector == "" {
		return s.catalogue.Wants(req)
	}
	key := shape{
		class: req.Class, selector: req.Selector, pool: req.Pool, child: req.Child, namespace: req.Namespace(),
		family: req.Family, length: req.Length, granted: req.Granted, single: req.Single,
	}
	wants, ok := s.known[key]
	if !ok {
		wants = s.catalogue.Wants(req)
		s.known[key] = wants
	}
	return wants
}
