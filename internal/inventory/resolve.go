package inventory

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Resolution holds the result of a request: terms, and the pools to try in order.
type Resolution struct {
	Terms ipam.Terms
	Pools []ipam.Pool
	// Class is nil if the request names a pool or a selector instead of a class.
	Class *ipam.Class
	// PassedOver holds other pools that the request may use, by name, and why it is not served from
	// them; also with an error.
	PassedOver []ipam.PoolResult
}

// Resolve finds the terms and the pools of a request. The error is a *ipam.MissingError, with the
// known part of the terms, or a *ipam.PolicyError, and contains for each usable pool the reason why
// it does not serve the request (ipam.PoolsOf); or ipam.ErrNotSynced if the namespace has not been
// seen.
func (c *Catalog) Resolve(req ipam.Request) (Resolution, error) {
	objects, err := c.lookUpNamed(req)
	if err != nil {
		return Resolution{}, err
	}
	terms, err := ipam.Fold(objects.request, objects.class, objects.pools)
	if err != nil {
		return Resolution{}, err
	}
	res := Resolution{Terms: terms, Class: objects.class, PassedOver: objects.excluded}
	if err = objects.missing; err == nil {
		err = c.selectPools(&res, objects.pools)
	}
	ipam.SortByPool(res.PassedOver)
	return res, ipam.WithPools(err, res.PassedOver)
}

// selectPools selects the pools that can serve the terms, and records the reasons why the others cannot.
func (c *Catalog) selectPools(res *Resolution, pools []ipam.Pool) error {
	fitting, unfit, err := res.Terms.Fitting(pools)
	res.PassedOver = append(res.PassedOver, unfit...)
	if err != nil {
		return orProvisioner(res.Terms, pools, err)
	}
	fitting, tooSmall, err := splitBySize(res.Terms, fitting)
	res.PassedOver = append(res.PassedOver, tooSmall...)
	if err != nil {
		return orProvisioner(res.Terms, pools, err)
	}
	ready, unready := c.splitReady(fitting)
	res.PassedOver = append(res.PassedOver, unready...)
	if len(ready) == 0 && len(unready) > 0 {
		return unready[len(unready)-1].Err
	}
	res.Pools = ipam.Rank(c.candidates(ready), res.Terms.Selection)
	return nil
}

// awaitsProvisioner reports whether a request for which no pool is suitable waits until the provisioner
// of its class has made one. It does not if it asks for one block, which no provisioner chooses, or is
// not to wait for room.
func awaitsProvisioner(terms ipam.Terms, pools []ipam.Pool) bool {
	return terms.Provisioner != "" && !terms.Block.IsValid() && terms.WhenExhausted(pools) != ipam.OnExhaustionReject
}

// orProvisioner returns the error of a request for which no pool is suitable.
func orProvisioner(terms ipam.Terms, pools []ipam.Pool, err error) error {
	if err == nil || !awaitsProvisioner(terms, pools) {
		return err
	}
	return provisionerError("no pool of the IPClass %q can hand out a /%d", terms.Provisioner, terms.Class, terms.Length)
}

// provisionerError returns the error of a request that waits until the provisioner of its class has
// made a pool.
func provisionerError(format, provisioner string, args ...any) *ipam.MissingError {
	return missingError(v1alpha1.ReasonWaitingForProvisioner, format+": wait until its provisioner, %s, has made one, or name another class", append(args, provisioner)...)
}

// namedObjects holds a request with its tenant, its class, and the pools that may serve it as far
// as names go; missing is the reason if there are none.
type namedObjects struct {
	request ipam.Request
	class   *ipam.Class
	pools   []ipam.Pool
	missing error
	// excluded holds the pools that name the class, and do not back it.
	excluded []ipam.PoolResult
}

func (c *Catalog) lookUpNamed(req ipam.Request) (namedObjects, error) {
	req, err := c.withTenant(req)
	if err != nil {
		return namedObjects{}, err
	}
	class, err := c.classOf(req)
	if err != nil {
		return namedObjects{}, err
	}
	objects := namedObjects{request: req, class: class}
	objects.pools, objects.missing = c.poolsOf(&objects)
	return objects, nil
}

// classOf returns the class that a request names, or the default one.
func (c *Catalog) classOf(req ipam.Request) (*ipam.Class, error) {
	if req.Pool != (ipam.PoolKey{}) || req.Selects != nil {
		return nil, nil
	}
	mayUse := func(c ClassEntry) bool { return req.Tenant.MayUse(c.Visibility, c.Project) }
	entry, ok := c.Class(req.Class)
	if req.Class == "" {
		family := c.familyOf(req)
		if entry, ok = c.DefaultClass(family, mayUse); !ok {
			return nil, missingError(v1alpha1.ReasonNoDefaultClass, "the claim names no class and no pool, and there is no default class for %s: set spec.className, or annotate an %[1]s class with %s=true", family, v1alpha1.AnnotationDefaultClass)
		}
	}
	if !ok || !mayUse(entry) {
		return nil, missingError(v1alpha1.ReasonClassNotFound, "there is no IPClass %q that this namespace may use: create it, or name another one", req.Class)
	}
	return &entry.Class, nil
}

// familyOf returns the family of a request without class and pool. It does not depend on which
// default classes exist.
func (c *Catalog) familyOf(req ipam.Request) ipam.Family {
	if req.Block.IsValid() {
		return ipam.FamilyOf(req.Block)
	}
	return cmp.Or(req.Family, c.defaultFamily)
}

// poolsOf returns the pools that may serve a request as far as names go, or the reason if there are
// none, and records the pools that the class excludes.
func (c *Catalog) poolsOf(objects *namedObjects) ([]ipam.Pool, error) {
	req, class := objects.request, objects.class
	switch {
	case req.Pool != (ipam.PoolKey{}):
		pool, ok := c.Pool(req.Pool)
		if !ok || !req.MayName(pool) {
			return nil, noPoolError(req, v1alpha1.ReasonPoolNotFound, "one")
		}
		return []ipam.Pool{pool}, nil
	case req.Selects != nil:
		pools := slices.DeleteFunc(c.PoolsWhere(req.Namespace(), req.Selects), func(p ipam.Pool) bool { return !req.MayName(p) || p.Key.Kind.IsInCluster() })
		if len(pools) == 0 {
			return nil, missingError(v1alpha1.ReasonPoolNotFound, "spec.poolSelector selects no pool that this namespace may use: label one, or change the selector")
		}
		return sortedByName(pools), nil
	default:
		backing, excluded := c.PoolsOf(req.Namespace(), *class)
		for _, pool := range filterUsable(req, excluded) {
			objects.excluded = append(objects.excluded, ipam.PoolResult{Pool: pool.Key, Err: class.Excludes(pool)})
		}
		pools := filterUsable(req, backing)
		switch {
		case len(pools) > 0:
			return sortedByName(pools), nil
		case class.Provisioner != "":
			return nil, provisionerError("no %s pool that this namespace may use backs the IPClass %q", class.Provisioner, class.Family, class.Name)
		default:
			return nil, missingError(v1alpha1.ReasonNoPoolForClass, "no %s pool that this namespace may use backs the IPClass %q: add the class to the classNames of one, or change the visibility of one that backs it", class.Family, class.Name)
		}
	}
}

// filterUsable returns the pools that a request may use without naming them.
func filterUsable(req ipam.Request, pools []ipam.Pool) []ipam.Pool {
	return slices.DeleteFunc(pools, func(p ipam.Pool) bool { return !req.MayUse(p) })
}

func (c *Catalog) candidates(pools []ipam.Pool) []ipam.Candidate {
	candidates := make([]ipam.Candidate, len(pools))
	for i, pool := range pools {
		candidates[i] = ipam.Candidate{Pool: pool, Utilized: c.ledger.Utilized(pool.Key)}
	}
	return candidates
}

func sortedByName(pools []ipam.Pool) []ipam.Pool {
	slices.SortFunc(pools, ipam.ByName)
	return pools
}

// ClassEntry holds a class with the values that decide between two defaults.
type ClassEntry struct {
	ipam.Class
	Default bool
	// Replaces names the default class that this one replaces as the default.
	Replaces string
	Created  time.Time
}

// DefaultOf returns the class that counts among several of one family that are each annotated as
// the default: the oldest that no other of them replaces. Two classes that replace each other stay
// candidates. It returns false if there are no classes.
//
// So there is a default at each moment of a switch from A to B. First, one write makes B the
// default that replaces A: from then on B counts. Then A stops being the default, which changes
// nothing.
func DefaultOf(classes []ClassEntry) (ClassEntry, bool) {
	if len(classes) == 0 {
		return ClassEntry{}, false
	}
	var candidates []ClassEntry
	for _, class := range classes {
		if !slices.ContainsFunc(classes, func(other ClassEntry) bool { return other.isReplacing(class) }) {
			candidates = append(candidates, class)
		}
	}
	if len(candidates) == 0 { // each replaces another
		candidates = classes
	}
	return slices.MinFunc(candidates, olderFirst), true
}

// isReplacing reports whether the class counts in place of the other.
func (e ClassEntry) isReplacing(other ClassEntry) bool {
	return e.Replaces == other.Name && other.Replaces != e.Name
}

func olderFirst(a, b ClassEntry) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
}

// ReadClass reads a class, and reports whether it is valid.
func ReadClass(obj *v1alpha1.IPClass) (ClassEntry, bool) {
	class, errs := convert.Class(obj)
	return ClassEntry{
		Class: class, Created: obj.CreationTimestamp.Time,
		Default:  IsDefault(obj),
		Replaces: obj.Annotations[v1alpha1.AnnotationReplacesDefault],
	}, len(errs) == 0
}

// IsDefault reports whether a class is annotated as the default.
func IsDefault(obj *v1alpha1.IPClass) bool {
	return obj.Annotations[v1alpha1.AnnotationDefaultClass] == "true"
}

// defaultsFirst sorts listed classes. If they are stored in this order, there is a default at each
// moment, provided that there was one before and is one after.
func defaultsFirst(classes []v1alpha1.IPClass) {
	slices.SortStableFunc(classes, func(a, b v1alpha1.IPClass) int {
		switch {
		case IsDefault(&a) == IsDefault(&b):
			return 0
		case IsDefault(&a):
			return -1
		default:
			return 1
		}
	})
}

// Wants returns the size, account and pools, ready or not, of the block that a request would take.
// Without pools, an object is missing or not allowed, or the provisioner of the class makes a pool.
func (c *Catalog) Wants(req ipam.Request) ipam.Wants {
	objects, err := c.lookUpNamed(req)
	if err != nil {
		return ipam.Wants{}
	}
	req, class := objects.request, objects.class
	terms, err := ipam.Fold(req, class, objects.pools)
	if err != nil || objects.missing != nil && !awaitsProvisioner(terms, nil) {
		return ipam.Wants{}
	}
	fitting, _, err := terms.Fitting(objects.pools)
	if err != nil && !awaitsProvisioner(terms, objects.pools) || req.Child != (ipam.PoolKey{}) && allOfParent(terms, fitting[0]) != nil {
		return ipam.Wants{}
	}
	wants := ipam.Wants{Length: terms.Length, Account: ipam.Account{Project: req.Tenant.Project, Class: terms.Class}, Provisioner: terms.Provisioner}
	if class != nil {
		wants.Account.ClassLimit = class.Limit
	}
	for _, pool := range fitting {
		wants.Pools = append(wants.Pools, pool.Key)
	}
	return wants
}

// WantsCache resolves each kind of requests once, at that time. It is for one goroutine.
type WantsCache struct {
	catalog *Catalog
	wants   map[requestKey]ipam.Wants
}

// NewWantsCache returns an empty cache.
func (c *Catalog) NewWantsCache() *WantsCache {
	return &WantsCache{catalog: c, wants: map[requestKey]ipam.Wants{}}
}

// requestKey holds the fields of a request from which its wants follow.
type requestKey struct {
	class, selector string
	pool, child     ipam.PoolKey
	namespace       string
	family          ipam.Family
	length          int
	grant           any // an ipam.Grant, or nil
	single          bool
}

// Wants returns the result of Catalog.Wants.
func (s *WantsCache) Wants(req ipam.Request) ipam.Wants {
	if req.Block.IsValid() || req.Selects != nil && req.Selector == "" {
		return s.catalog.Wants(req)
	}
	key := requestKey{
		class: req.Class, selector: req.Selector, pool: req.Pool, child: req.Child, namespace: req.Namespace(),
		family: req.Family, length: req.Length, single: req.Single,
	}
	if req.Grant != nil {
		key.grant = *req.Grant
	}
	wants, ok := s.wants[key]
	if !ok {
		wants = s.catalog.Wants(req)
		s.wants[key] = wants
	}
	return wants
}

// splitBySize returns the pools that have a block of the length when nothing is in use, or may get
// one, and the others. If no pool has one, no release would help: the error is a *ipam.PolicyError
// if the request is not to wait for room, otherwise a *ipam.MissingError, because a pool may be
// edited.
func splitBySize(terms ipam.Terms, pools []ipam.Pool) (fit []ipam.Pool, tooSmall []ipam.PoolResult, err error) {
	if terms.Length == ipam.NoLength || terms.Block.IsValid() {
		return pools, nil, nil
	}
	for _, pool := range pools {
		if !pool.CIDR.IsValid() || canEverHold(pool, terms.Length) {
			fit = append(fit, pool)
			continue
		}
		tooSmall = append(tooSmall, ipam.PoolResult{Pool: pool.Key, Err: cannotFitError(terms, []ipam.Pool{pool})})
	}
	if len(fit) > 0 || len(pools) == 0 {
		return fit, tooSmall, nil
	}
	if terms.WhenExhausted(pools) == ipam.OnExhaustionReject {
		return nil, tooSmall, &ipam.PolicyError{Field: "spec.prefixLength", Value: terms.Length, Remedy: tooLargeRemedy(pools), Verdict: ipam.CannotFit}
	}
	return nil, tooSmall, cannotFitError(terms, pools)
}

func cannotFitError(terms ipam.Terms, pools []ipam.Pool) error {
	err := missingError(v1alpha1.ReasonCannotFit, "no /%d can be handed out: %s", terms.Length, tooLargeRemedy(pools))
	err.Verdict = ipam.CannotFit
	return err
}

func canEverHold(pool ipam.Pool, length int) bool {
	largest := pool.LargestBlock()
	return largest != ipam.NoLength && largest <= length
}

// tooLargeRemedy names the pool whose largest block is the largest.
func tooLargeRemedy(pools []ipam.Pool) string {
	best := pools[0]
	for _, pool := range pools[1:] {
		if largest := pool.LargestBlock(); largest != ipam.NoLength && !canEverHold(best, largest) {
			best = pool
		}
	}
	if best.LargestBlock() == ipam.NoLength {
		return fmt.Sprintf("%s (%s) withholds all of its addresses: change its ranges or reserved", best.Key, best.CIDR)
	}
	return fmt.Sprintf("the ranges and reserved addresses of %s (%s) leave a /%d at most, even when it is empty: ask for a smaller block, or change them",
		best.Key, best.CIDR, best.LargestBlock())
}
