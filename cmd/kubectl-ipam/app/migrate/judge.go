package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
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
	// seen marks the names of the judged objects.
	seen map[string]bool
	// refused counts, for each pool that cannot be made, the rows that are part of it, and
	// absent, for each namespace in which no claim can be made, the claims that it would have.
	refused, absent map[string]int
	// supposed holds the records of the planned objects.
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
		register: g, existing: existing, operator: operator, schemas: manifests.NewSchemas(), client: c, seen: map[string]bool{},
		refused: map[string]int{}, absent: map[string]int{}, rights: map[authorizationv1.ResourceAttributes]bool{},
	}
	if err := inOrder(ctx, j.judgePools, j.judgeClaims); err != nil {
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
			} else if err := j.addJudged(ctx, pool); err != nil {
				return err
			}
		}
		if len(later) == len(left) {
			for _, pool := range later {
				j.refuse(pool, "%s: %q is part of this pool itself: name a pool outside of it", j.column("spec.parentRef.name"), pool.Spec.ParentRef.Name)
				j.refused[pool.Name] += 0
			}
			break
		}
		left = later
	}
	j.register.sort()
	return nil
}

// refuse lists the reason why an object cannot be made, and returns false.
func (j *judge) refuse(obj client.Object, format string, args ...any) bool {
	j.problem(j.places[obj], format, args...)
	return false
}

// isPart reports whether an object is part of a pool that cannot be made, and counts it there.
func (j *judge) isPart(pool string) bool {
	_, isRefused := j.refused[pool]
	if isRefused {
		j.refused[pool]++
	}
	return isRefused
}

// addJudged keeps a pool in the register if it can be made.
func (j *judge) addJudged(ctx context.Context, pool *v1alpha1.IPPool) error {
	name := nameOfHolder("IPPool", pool)
	if j.seen[name] {
		j.refuse(pool, "%s: there are two pools %q: rename one", j.column("metadata.name"), pool.Name)
		return nil
	}
	j.seen[name] = true
	accepted, err := j.judgePool(ctx, pool)
	if accepted {
		j.register.pools = append(j.register.pools, pool)
	} else {
		j.refused[pool.Name] += 0
	}
	return err
}

func (j *judge) judgePool(ctx context.Context, pool *v1alpha1.IPPool) (accepted bool, err error) {
	if current := j.existing.pools[pool.Name]; current != nil {
		if why := differs(current, pool); why != "" {
			return j.refuse(pool, "%s", why), nil
		}
		j.exists[pool] = true
		return true, nil
	}
	read, errs := convert.Pool(pool)
	if errs = append(errs, j.invalid("IPPool", pool, false)...); len(errs) > 0 {
		return j.refuse(pool, "%s", j.texts(errs)), nil
	}
	if parent := pool.Spec.ParentRef; parent != nil && j.isPart(parent.Name) {
		return false, nil
	}
	if allowed, err := j.isAllowed(ctx, authorizationv1.ResourceAttributes{Verb: "create", Resource: "ippools"}); err != nil || !allowed {
		return j.refuse(pool, "you may not create ippools: ask for the right"), err
	}
	if err := j.supposePool(ctx, read); err != nil {
		return j.refuse(pool, "%s", j.text(err, read.CIDR)), nil
	}
	j.operator.Catalog.RecordObject(pool)
	return true, nil
}

// supposePool records the block of a pool as if the pool had been made.
func (j *judge) supposePool(ctx context.Context, pool ipam.Pool) (err error) {
	if pool.ParentGrant, err = j.grantFor(ctx, pool.ParentRequest()); err != nil {
		return err
	}
	order, err := j.operator.PoolOrder(pool)
	if err != nil {
		return err
	}
	return j.suppose(order)
}

// suppose records a block as if its holder had been made. The holder may have recorded the block
// itself: in an import that was interrupted, or in one that was rolled back a moment ago.
func (j *judge) suppose(order allocator.Order) error {
	order.Origin = allocator.OriginAdmission
	record, err := j.operator.Suppose(order)
	if taken, ok := errors.AsType[*ipam.TakenError](err); ok && taken.Holder == order.Holder && taken.Overlap == taken.Block {
		return nil
	}
	if err == nil {
		j.supposed = append(j.supposed, record)
	}
	return err
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
	name := nameOfHolder("IPClaim", claim)
	switch {
	case claim.Namespace == "":
		return j.refuse(claim, "it names no namespace: name one, or choose one with -n"), nil
	case j.seen[name]:
		return j.refuse(claim, "%s: there are two claims %s: rename one", j.column("metadata.name"), keyOf(claim)), nil
	}
	j.seen[name] = true
	if current := j.existing.claims[keyOf(claim)]; current != nil {
		if !holds(current, claim) {
			return j.refuse(claim, "%s exists, for %s in place of %s of IPPool %s: rename or delete it", name, cmp.Or(current.Spec.CIDR, "no block"), claim.Spec.CIDR, claim.Spec.PoolRef.Name), nil
		}
		j.exists[claim] = true
		return true, nil
	}
	request, errs := convert.Claim(claim)
	if errs = append(errs, j.invalid("IPClaim", claim, true)...); len(errs) > 0 {
		return j.refuse(claim, "%s", j.texts(errs)), nil
	}
	if !j.namespaces[claim.Namespace] {
		j.absent[claim.Namespace]++
		return false, nil
	}
	if j.isPart(claim.Spec.PoolRef.Name) {
		return false, nil
	}
	if allowed, err := j.isAllowed(ctx, authorizationv1.ResourceAttributes{Verb: "create", Resource: "ipclaims", Namespace: claim.Namespace}); err != nil || !allowed {
		return j.refuse(claim, "you may not create ipclaims in namespace %s: ask for the right, or choose another", claim.Namespace), err
	}
	if err := j.supposeClaim(ctx, request); err != nil {
		return j.refuse(claim, "%s", j.text(err, request.Block)), nil
	}
	return true, nil
}

// supposeClaim records the block of a claim as if the claim had been made.
func (j *judge) supposeClaim(ctx context.Context, request ipam.Request) (err error) {
	if request.Grant, err = j.grantFor(ctx, request); err != nil {
		return err
	}
	resolution, err := j.operator.Resolve(ctx, request)
	if err != nil {
		return err
	}
	return j.suppose(allocator.Order{Resolution: resolution, Holder: convert.HolderOfClaim(request.Claim)})
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

// grantFor returns the right of the user to use the pool that a request names; nil if there is
// none, or none is necessary.
func (j *judge) grantFor(ctx context.Context, request ipam.Request) (*ipam.Grant, error) {
	if !j.operator.Catalog.LacksRight(request) {
		return nil, nil
	}
	allowed, err := j.isAllowed(ctx, authorizationv1.ResourceAttributes{Verb: "use", Resource: "ippools", Name: request.Pool.Name})
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
	namespaces := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NamespaceList"}}
	allocations := &v1alpha1.IPAllocationList{}
	for _, list := range []client.ObjectList{
		namespaces, &v1alpha1.IPClassList{}, &v1alpha1.IPPoolList{}, &v1alpha1.LocalIPPoolList{}, &v1alpha1.IPClaimList{}, allocations,
	} {
		if err := c.List(ctx, list); err != nil {
			return e, fmt.Errorf("listing the existing objects, by which the plan is judged: %w", err)
		}
		_ = meta.EachListItem(list, e.add) // which returns no error
	}
	holders, err := (&run{client: c}).holders(ctx, allocations.Items)
	if err != nil {
		return e, err
	}
	for i := range allocations.Items {
		obj := &allocations.Items[i]
		record, err := convert.Record(obj)
		if err != nil {
			e.snapshot.Unreadable = append(e.snapshot.Unreadable, record)
			continue
		}
		e.snapshot.Records = append(e.snapshot.Records, record)
		if record.Purpose == ipam.PurposePool || isKept(obj) || !isLeaving(holders[holderName(obj)]) {
			e.staying = append(e.staying, record)
		}
	}
	return e, nil
}

// add adds an object, unless it is an IPAllocation.
func (e *existing) add(obj runtime.Object) error {
	switch obj := obj.(type) {
	case *v1alpha1.IPAllocation:
		return nil
	case *v1alpha1.IPClaim:
		e.claims[keyOf(obj)] = obj
		if obj.Spec.AllocationName == "" {
			e.snapshot.Waiting = append(e.snapshot.Waiting, *obj)
		}
		return nil
	case *v1alpha1.IPPool:
		e.pools[obj.Name] = obj
	case *metav1.PartialObjectMetadata:
		e.namespaces[obj.Name] = obj.DeletionTimestamp.IsZero()
	}
	e.snapshot.Objects = append(e.snapshot.Objects, obj.(client.Object))
	return nil
}
