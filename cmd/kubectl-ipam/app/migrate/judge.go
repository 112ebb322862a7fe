package migrate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/manifests"
)

// judge asks the operator's own code about each planned object, in the order in which the
// objects are made. If admission would refuse an object, or let it wait, that is a problem. An
// accepted object is recorded in the same catalog and ledger, beside the existing objects.
type judge struct {
	*register
	existing
	operator *allocator.Simulator
	schemas  manifests.Schemas
	client   client.Client
	// seen holds the names of the judged objects.
	seen map[poolRef]bool
	// refused counts, for each pool that cannot be made, the rows that are part of it, and
	// absent, for each namespace in which no claim can be made, the claims that it would have.
	refused, absent map[string]int
	// supposed holds the records of the planned pools.
	supposed []ipam.Record
	// rights holds the rights of the user that the API server was asked for.
	rights map[authorizationv1.ResourceAttributes]bool
}

// judge removes from the register, with a problem each, the objects that could not be made.
func (g *register) judge(ctx context.Context, c client.Client) error {
	existing, err := readExisting(ctx, c)
	if err != nil {
		return err
	}
	operator, err := allocator.NewSimulator(existing.snapshot)
	if err != nil {
		return err
	}
	defer operator.Close()
	ctx = log.IntoContext(ctx, logr.Discard()) // a command has no log
	j := &judge{
		register: g, existing: existing, operator: operator, schemas: manifests.NewSchemas(), client: c, seen: map[poolRef]bool{},
		refused: map[string]int{}, absent: map[string]int{}, rights: map[authorizationv1.ResourceAttributes]bool{},
	}
	if err := j.judgePools(ctx); err != nil {
		return err
	}
	if err := j.judgeClaims(ctx); err != nil {
		return err
	}
	j.sumUp()
	return nil
}

// judgePools judges parents before their children.
func (j *judge) judgePools(ctx context.Context) error {
	left := j.register.pools
	j.register.pools = nil
	for len(left) > 0 {
		planned := map[string]bool{}
		for _, pool := range left {
			planned[pool.Name] = true
		}
		var later []*v1alpha1.IPPool
		for _, pool := range left {
			if parent := pool.Spec.ParentRef; parent != nil && parent.Name != pool.Name && planned[parent.Name] {
				later = append(later, pool)
				continue
			}
			if err := j.judgePool(ctx, pool); err != nil {
				return err
			}
		}
		if len(later) == len(left) {
			for _, pool := range later {
				j.refuse(pool, "%s: %q is part of this pool itself: name a pool outside of it", j.column("spec.parentRef.name"), pool.Spec.ParentRef.Name)
			}
			break
		}
		left = later
	}
	j.register.sort()
	return nil
}

// refuse lists the reason why a pool cannot be made.
func (j *judge) refuse(pool *v1alpha1.IPPool, format string, args ...any) {
	j.problem(j.places[pool], format, args...)
	j.refused[pool.Name] += 0
}

func (j *judge) judgePool(ctx context.Context, pool *v1alpha1.IPPool) error {
	if j.seen[refOfPool(pool)] {
		j.problem(j.places[pool], "%s: there are two pools %q: rename one", j.column("metadata.name"), pool.Name)
		return nil
	}
	j.seen[refOfPool(pool)] = true
	if current := j.existing.pools[pool.Name]; current != nil {
		if why := differs(current, pool); why != "" {
			j.refuse(pool, "%s", why)
			return nil
		}
		j.exists[pool] = true
		j.register.pools = append(j.register.pools, pool)
		return nil
	}
	read, errs := convert.Pool(pool)
	if errs = append(errs, j.invalid("IPPool", pool, false)...); len(errs) > 0 {
		j.refuse(pool, "%s", j.texts(errs))
		return nil
	}
	if parent := pool.Spec.ParentRef; parent != nil {
		if _, ok := j.refused[parent.Name]; ok {
			j.refused[parent.Name]++
			j.refused[pool.Name] += 0
			return nil
		}
	}
	if allowed, err := j.isAllowed(ctx, authorizationv1.ResourceAttributes{Verb: "create", Resource: "ippools"}); err != nil || !allowed {
		j.refuse(pool, "you may not create ippools: ask for the right")
		return err
	}
	if err := j.suppose(ctx, pool, read); err != nil {
		j.refuse(pool, "%s", j.text(err, read.CIDR))
		return nil
	}
	j.register.pools = append(j.register.pools, pool)
	return nil
}

// suppose records a pool as if it had been made.
func (j *judge) suppose(ctx context.Context, obj *v1alpha1.IPPool, pool ipam.Pool) error {
	if j.operator.Catalog.LacksRight(pool.ParentRequest()) {
		grant, err := j.mayUse(ctx, pool.Home.Name)
		if err != nil {
			return err
		}
		pool.ParentGrant = grant
	}
	order, err := j.operator.PoolOrder(pool)
	if err != nil {
		return err
	}
	order.Origin = allocator.OriginAdmission
	record, err := j.operator.Suppose(order)
	switch {
	case err == nil:
		j.supposed = append(j.supposed, record)
	case !isOwn(err, order.Holder):
		return err
	}
	j.operator.Catalog.RecordObject(obj)
	return nil
}

// isOwn reports whether the block in the way belongs to its own holder: an import that was
// interrupted, or one that was rolled back a moment ago, has recorded it.
func isOwn(err error, holder ipam.Holder) bool {
	taken, ok := errors.AsType[*ipam.TakenError](err)
	return ok && taken.Holder == holder && taken.Overlap == taken.Block
}

// judgeClaims judges the claims against all pools. It treats a block that is about to be
// released as free, as makeClaims waits for the release.
func (j *judge) judgeClaims(ctx context.Context) error {
	j.operator.Ledger.Load(append(j.staying, j.supposed...), j.snapshot.Unreadable)
	claims := j.register.claims
	j.register.claims = nil
	for _, claim := range claims {
		accepted, err := j.judgeClaim(ctx, claim)
		if err != nil {
			return err
		}
		if accepted {
			j.register.claims = append(j.register.claims, claim)
		}
	}
	return nil
}

func (j *judge) judgeClaim(ctx context.Context, claim *v1alpha1.IPClaim) (accepted bool, err error) {
	at, ref := j.places[claim], poolRef{Kind: "IPClaim", Namespace: claim.Namespace, Name: claim.Name}
	if claim.Namespace == "" {
		j.problem(at, "it names no namespace: name one, or choose one with -n")
		return false, nil
	}
	if j.seen[ref] {
		j.problem(at, "%s: there are two claims %s: rename one", j.column("metadata.name"), keyOf(claim))
		return false, nil
	}
	j.seen[ref] = true
	if current := j.existing.claims[keyOf(claim)]; current != nil {
		j.exists[claim] = holds(current, claim)
		if !j.exists[claim] {
			j.problem(at, "IPClaim %s exists, for %s in place of %s of IPPool %s: rename or delete it", keyOf(claim), textOfBlock(current), claim.Spec.CIDR, claim.Spec.PoolRef.Name)
		}
		return j.exists[claim], nil
	}
	request, errs := convert.Claim(claim)
	if errs = append(errs, j.invalid("IPClaim", claim, true)...); len(errs) > 0 {
		j.problem(at, "%s", j.texts(errs))
		return false, nil
	}
	if active, ok := j.namespaces[claim.Namespace]; !ok || !active {
		j.absent[claim.Namespace]++
		return false, nil
	}
	if _, ok := j.refused[claim.Spec.PoolRef.Name]; ok {
		j.refused[claim.Spec.PoolRef.Name]++
		return false, nil
	}
	if allowed, err := j.isAllowed(ctx, authorizationv1.ResourceAttributes{Verb: "create", Resource: "ipclaims", Namespace: claim.Namespace}); err != nil || !allowed {
		j.problem(at, "you may not create ipclaims in namespace %s: ask for the right, or choose another", claim.Namespace)
		return false, err
	}
	if err := j.supposeClaim(ctx, request); err != nil {
		j.problem(at, "%s", j.text(err, request.Block))
		return false, nil
	}
	return true, nil
}

// supposeClaim records the block of a claim as if the claim had been made.
func (j *judge) supposeClaim(ctx context.Context, request ipam.Request) error {
	if j.operator.Catalog.LacksRight(request) {
		grant, err := j.mayUse(ctx, request.Pool.Name)
		if err != nil {
			return err
		}
		request.Grant = grant
	}
	resolution, err := j.operator.Resolve(ctx, request)
	if err != nil {
		return err
	}
	order := allocator.Order{Resolution: resolution, Origin: allocator.OriginAdmission, Holder: convert.HolderOfClaim(request.Claim)}
	if _, err := j.operator.Suppose(order); err != nil && !isOwn(err, order.Holder) {
		return err
	}
	return nil
}

// invalid returns the errors for which the API server by itself would refuse an object.
func (j *judge) invalid(kind string, obj client.Object, namespaced bool) field.ErrorList {
	errs := validation.ValidateObjectMetaAccessor(obj, namespaced, validation.NameIsDNSSubdomain, field.NewPath("metadata"))
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return append(errs, field.InternalError(nil, err))
	}
	return append(errs, j.schemas.Errors(kind, object)...)
}

// mayUse returns the right of the user to use a pool; nil if there is none.
func (j *judge) mayUse(ctx context.Context, pool string) (*ipam.Grant, error) {
	allowed, err := j.isAllowed(ctx, authorizationv1.ResourceAttributes{Verb: "use", Resource: "ippools", Name: pool})
	if err != nil || !allowed {
		return nil, err
	}
	return &ipam.Grant{}, nil
}

// isAllowed reports whether the user has a right. It asks the API server once for each right.
func (j *judge) isAllowed(ctx context.Context, attributes authorizationv1.ResourceAttributes) (bool, error) {
	attributes.Group = v1alpha1.GroupVersion.Group
	if allowed, ok := j.rights[attributes]; ok {
		return allowed, nil
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes}}
	if err := j.client.Create(ctx, review); err != nil {
		return false, fmt.Errorf("asking whether you may %s %s: %w", attributes.Verb, attributes.Resource, err)
	}
	j.rights[attributes] = review.Status.Allowed
	return review.Status.Allowed, nil
}

// sumUp lists the problems that many rows have in common.
func (j *judge) sumUp() {
	for _, name := range slices.Sorted(maps.Keys(j.absent)) {
		why := "does not exist: create it"
		if _, ok := j.namespaces[name]; ok {
			why = "is being deleted: wait until it is gone, and create it again"
		}
		j.problem(location{text: "namespace " + name}, "%s is to have %s, and %s", name, ipam.FormatCount(j.absent[name], "claim"), why)
	}
	for _, name := range slices.Sorted(maps.Keys(j.refused)) {
		if n := j.refused[name]; n > 0 {
			j.problem(location{text: "IPPool " + name}, "cannot be made, nor its parts (%s): correct it first", ipam.FormatCount(n, "row"))
		}
	}
}

// existing holds the objects of the cluster.
type existing struct {
	pools  map[string]*v1alpha1.IPPool
	claims map[client.ObjectKey]*v1alpha1.IPClaim
	// namespaces holds the existing namespaces, and whether objects can be created in them.
	namespaces map[string]bool
	snapshot   allocator.Snapshot
	// staying holds the records of the snapshot without those of claims that are gone.
	staying []ipam.Record
}

// readExisting lists all objects by which admission judges.
func readExisting(ctx context.Context, c client.Client) (existing, error) {
	e := existing{pools: map[string]*v1alpha1.IPPool{}, claims: map[client.ObjectKey]*v1alpha1.IPClaim{}, namespaces: map[string]bool{}}
	pools, locals, classes, claims := &v1alpha1.IPPoolList{}, &v1alpha1.LocalIPPoolList{}, &v1alpha1.IPClassList{}, &v1alpha1.IPClaimList{}
	namespaces := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NamespaceList"}}
	allocations := &v1alpha1.IPAllocationList{}
	for _, list := range []client.ObjectList{pools, locals, classes, claims, namespaces, allocations} {
		if err := c.List(ctx, list); err != nil {
			return e, fmt.Errorf("listing the existing objects, by which the plan is judged: %w", err)
		}
	}
	s := &e.snapshot
	for i := range namespaces.Items {
		e.namespaces[namespaces.Items[i].Name] = namespaces.Items[i].DeletionTimestamp.IsZero()
		s.Objects = append(s.Objects, &namespaces.Items[i])
	}
	for i := range classes.Items {
		s.Objects = append(s.Objects, &classes.Items[i])
	}
	for i := range pools.Items {
		e.pools[pools.Items[i].Name] = &pools.Items[i]
		s.Objects = append(s.Objects, &pools.Items[i])
	}
	for i := range locals.Items {
		s.Objects = append(s.Objects, &locals.Items[i])
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		e.claims[keyOf(claim)] = claim
		if claim.Spec.AllocationName == "" {
			s.Waiting = append(s.Waiting, *claim)
		}
	}
	holders, err := (&run{client: c}).holders(ctx, allocations.Items)
	if err != nil {
		return e, err
	}
	for i := range allocations.Items {
		obj := &allocations.Items[i]
		record, err := convert.Record(obj)
		if err != nil {
			s.Unreadable = append(s.Unreadable, record)
			continue
		}
		s.Records = append(s.Records, record)
		if record.Purpose == ipam.PurposePool || isKept(obj) || !isLeaving(holders[holderName(obj)]) {
			e.staying = append(e.staying, record)
		}
	}
	return e, nil
}
