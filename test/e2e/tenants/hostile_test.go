package tenants

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

const (
	ownFinalizer = "example.com/keep"
	// mostClaims bounds the claims that an attacker keeps in its namespace.
	mostClaims = 50
)

// hostile represents one client of the hostile tenant.
type hostile struct {
	client client.Client
	random *rand.Rand
	// knownClaim is a claim of the honest tenant, whose record and block the attacker knows.
	knownClaim *v1alpha1.IPClaim
	// claims has those that it made and may have.
	claims  []*v1alpha1.IPClaim
	answers *answers

	// server is the address of the API server, and raw a client of it that parses nothing.
	server string
	raw    *http.Client
	// path belongs to a webhook, as it has leaked; replicas and direct are the way there past the
	// API server.
	path     *atomic.Pointer[string]
	replicas []string
	direct   *http.Client
}

func newHostile(w *world, good *honest, random *rand.Rand, all *answers) *hostile {
	w.Helper()
	cfg, err := w.User("mallory")
	suite.Must(w, err)
	raw, err := rest.HTTPClientFor(cfg)
	suite.Must(w, err)
	h := &hostile{
		client: w.Client(cluster.NoRetry(cfg)), random: random, knownClaim: good.holding[0].DeepCopy(), answers: all,
		server: strings.TrimSuffix(cfg.Host, "/"), raw: raw, path: &atomic.Pointer[string]{}, direct: suite.Insecure(answeredWithin),
	}
	leaked := w.claimPath()
	h.path.Store(&leaked)
	for _, m := range w.Managers {
		h.replicas = append(h.replicas, m.WebhookAddress)
	}
	return h
}

// attack misuses the operator until the context ends.
func (h *hostile) attack(ctx context.Context) {
	for ctx.Err() == nil {
		m := misuses[h.random.IntN(len(misuses))]
		m.do(h, ctx, func(err error) {
			if ctx.Err() == nil {
				h.answers.count(m.name, answerOf(err), err)
			}
		})
		for len(h.claims) > mostClaims {
			h.forget(ctx, h.random.IntN(len(h.claims)))
		}
	}
}

// forget deletes one of its claims.
func (h *hostile) forget(ctx context.Context, n int) {
	claim := h.claims[n]
	h.claims = append(h.claims[:n], h.claims[n+1:]...)
	_ = h.client.Delete(ctx, claim)
}

// create makes a claim, and remembers it if it was stored.
func (h *hostile) create(ctx context.Context, claim *v1alpha1.IPClaim) error {
	err := h.client.Create(ctx, claim)
	if err == nil && claim.Namespace == hostileNamespace {
		h.claims = append(h.claims, claim)
	}
	return err
}

// any returns one of its claims, nil if it has none.
func (h *hostile) any() *v1alpha1.IPClaim {
	if len(h.claims) == 0 {
		return nil
	}
	return h.claims[h.random.IntN(len(h.claims))].DeepCopy()
}

func (h *hostile) name() string { return fmt.Sprintf("m-%d", h.random.Uint64()) }

// misuse holds one kind of misuse. report is called with the answer to each request that counts.
type misuse struct {
	name string
	do   func(h *hostile, ctx context.Context, report func(error))
}

// once returns a misuse of one request.
func once(do func(h *hostile, ctx context.Context) error) func(*hostile, context.Context, func(error)) {
	return func(h *hostile, ctx context.Context, report func(error)) { report(do(h, ctx)) }
}

var misuses = []misuse{
	{"names", once((*hostile).oddName)},
	{"refused by a quota", once(func(h *hostile, ctx context.Context) error {
		return h.create(ctx, build.Claim(quotaNamespace, h.name()).Pool(poolOpen).Length(32).Obj())
	})},
	{"refused for something else", once((*hostile).refusedLater)},
	{"retain and delete", (*hostile).retainAndDelete},
	{"take as many addresses as possible", (*hostile).takeMuch},
	{"delete and create", (*hostile).deleteAndCreate},
	{"pools with huge lists", (*hostile).hugeLists},
	{"the largest objects", (*hostile).largest},
	{"pools in pools", (*hostile).nestedPools},
	{"a crowd that waits", (*hostile).crowd},
	{"blocks of others", once((*hostile).whatOthersHold)},
	{"replace", (*hostile).replace},
	{"forged fields", once((*hostile).forge)},
	{"forged status", (*hostile).forgeStatus},
	{"finalizers", (*hostile).finalizers},
	{"pools of others", once((*hostile).poolsOfOthers)},
	{"records", once((*hostile).records)},
	{"requests beyond a tenant's rights", once((*hostile).notATenants)},
	{"dry runs", once((*hostile).dryRun)},
	{"edits without end", (*hostile).edit},
	{"delete everything", (*hostile).deleteEverything},
	{"requests that are cut off", once((*hostile).createImpatiently)},
	{"a path that has leaked", once((*hostile).leakedPath)},
	{"one name at once", (*hostile).oneNameAtOnce},
	{"large objects", once((*hostile).large)},
}

// oddName makes a claim with a name as long and odd as the API server lets pass, or not.
func (h *hostile) oddName(ctx context.Context) error {
	const letters = "abc-.0"
	name := make([]byte, 1+h.random.IntN(256))
	for i := range name {
		name[i] = 'a'
		if h.random.IntN(8) == 0 {
			name[i] = letters[h.random.IntN(len(letters))]
		}
	}
	b := build.Claim(hostileNamespace, string(name))
	if h.random.IntN(3) == 0 {
		b.Generated(string(name))
	}
	return h.create(ctx, b.Class("hosts").Obj())
}

// refusedLater makes a claim that is refused for a reason that the operator does not judge, after
// its block was recorded.
func (h *hostile) refusedLater(ctx context.Context) error {
	claim := build.Claim(hostileNamespace, h.name()).Class("hosts").Obj()
	switch h.random.IntN(4) {
	case 0:
		claim.Labels = map[string]string{"not a label": "not a value!"}
	case 3:
		claim.Labels = map[string]string{refusedLabel: "true"} // by a policy of the platform
	case 1:
		claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "without-uid"}}
	default:
		claim.Finalizers = []string{"not a finalizer"}
	}
	return h.create(ctx, claim)
}

// retainAndDelete retains blocks for names that are never used again.
func (h *hostile) retainAndDelete(ctx context.Context, report func(error)) {
	for range 3 {
		claim := build.Claim(hostileNamespace, h.name()).Class("keep").Obj()
		if h.random.IntN(4) == 0 { // not allowed in a pool without allowRetain
			claim = build.Claim(hostileNamespace, h.name()).Pool(poolCommon).Length(32).With(func(s *v1alpha1.IPClaimSpec) { s.ReclaimPolicy = v1alpha1.ReclaimRetain }).Obj()
		}
		err := h.client.Create(ctx, claim)
		report(err)
		if err == nil {
			_ = h.client.Delete(ctx, claim)
		}
	}
}

// takeMuch takes addresses of a class until it gets no more, or has got many.
func (h *hostile) takeMuch(ctx context.Context, report func(error)) {
	class := []string{"hosts", "scarce"}[h.random.IntN(2)]
	for range 15 {
		claim := build.Claim(hostileNamespace, h.name()).Class(class).Obj()
		err := h.create(ctx, claim)
		report(err)
		if err != nil || claim.Status.Phase != v1alpha1.ClaimBound {
			return
		}
	}
}

// deleteAndCreate makes a claim of the same name again, at once.
func (h *hostile) deleteAndCreate(ctx context.Context, report func(error)) {
	claim := h.any()
	if claim == nil {
		return
	}
	report(h.client.Delete(ctx, claim))
	report(h.client.Create(ctx, build.Claim(claim.Namespace, claim.Name).Class("hosts").Obj()))
}

// hugeLists makes and changes pools of its namespace with as many ranges as there may be.
func (h *hostile) hugeLists(ctx context.Context, report func(error)) {
	pool := build.Pool(fmt.Sprintf("huge-%d", h.random.IntN(2*quotaLocalPools))).CIDR("fd00::/8").In(hostileNamespace)
	for range 1000 + h.random.IntN(36) { // some have too many
		first, last := h.address(), h.address()
		if last.Less(first) {
			first, last = last, first
		}
		pool.Spec.Ranges = append(pool.Spec.Ranges, first.String()+"-"+last.String())
		pool.Spec.Reserved = append(pool.Spec.Reserved, h.address().String())
	}
	err := h.client.Create(ctx, pool)
	report(err)
	if !apierrors.IsAlreadyExists(err) {
		return
	}
	if h.random.IntN(3) == 0 {
		report(h.client.Delete(ctx, pool))
		return
	}
	if h.client.Get(ctx, client.ObjectKeyFromObject(pool), pool) == nil {
		pool.Spec.Reserved = pool.Spec.Reserved[:h.random.IntN(len(pool.Spec.Reserved)+1)]
		report(h.client.Update(ctx, pool))
	}
}

// address returns one of fd00::/64.
func (h *hostile) address() netip.Addr {
	a := [16]byte{0: 0xfd}
	binary.BigEndian.PutUint64(a[8:], h.random.Uint64())
	return netip.AddrFrom16(a)
}

// nestedPools carves pools out of pools of its namespace, and claims of them.
func (h *hostile) nestedPools(ctx context.Context, report func(error)) {
	depth := h.random.IntN(3)
	pool := build.Pool(fmt.Sprintf("nested-%d", depth))
	if depth == 0 {
		pool.CIDR("10.80.0.0/21") // as the shared one: it is a separate domain
	} else {
		pool.Beside(fmt.Sprintf("nested-%d", depth-1), int32(21+2*depth))
	}
	obj := pool.In(hostileNamespace)
	switch h.random.IntN(3) {
	case 0:
		report(h.client.Delete(ctx, obj))
	case 1:
		report(h.client.Create(ctx, obj))
	default:
		report(h.create(ctx, build.Claim(hostileNamespace, h.name()).LocalPool(obj.Name).Length(int32(24+h.random.IntN(9))).Obj()))
	}
}

// crowd makes claims that wait: for a pool that is full, for missing pools, and for blocks that
// others hold.
func (h *hostile) crowd(ctx context.Context, report func(error)) {
	for range 20 {
		b := build.Claim(crowdNamespace, h.name()).Length(32)
		switch h.random.IntN(6) {
		case 5:
			b.Class("scarce")
		case 0:
			b.Class("missing-" + h.name())
		case 1:
			b.Pool("missing-" + h.name())
		case 2:
			b.Selecting("matches", "nothing")
		case 3:
			b.LocalPool("missing")
		default:
			b.Pool(poolSmall)
		}
		report(h.client.Create(ctx, b.Obj()))
	}
}

// whatOthersHold asks for exactly the blocks that the honest tenant is likely to have.
func (h *hostile) whatOthersHold(ctx context.Context) error {
	return h.create(ctx, build.Claim(hostileNamespace, h.name()).Class("hosts").CIDR(fmt.Sprintf("10.80.%d.%d/32", h.random.IntN(8), h.random.IntN(256))).Obj())
}

// replace writes one of its claims back with another block, or none.
func (h *hostile) replace(ctx context.Context, report func(error)) {
	claim := h.any()
	if claim == nil || h.client.Get(ctx, client.ObjectKeyFromObject(claim), claim) != nil {
		return
	}
	switch h.random.IntN(4) {
	case 0:
		claim.Spec.CIDR, claim.Spec.AllocationName = "", ""
	case 1:
		claim.Spec.CIDR = h.knownClaim.Spec.CIDR
	case 2:
		claim.Spec.AllocationName = h.knownClaim.Spec.AllocationName
	default:
		claim.Spec = v1alpha1.IPClaimSpec{ClassName: "hosts"}
	}
	report(h.client.Update(ctx, claim))
}

// forge makes a claim with fields that only the operator may write.
func (h *hostile) forge(ctx context.Context) error {
	b := build.Claim(hostileNamespace, h.name())
	switch h.random.IntN(4) {
	case 0: // the name that a client gives is not used
		claim := b.Class("hosts").Obj()
		claim.Spec.CIDR, claim.Spec.AllocationName = "10.80.0.1/32", "m-forged"
		return h.create(ctx, claim)
	case 1:
		claim := b.Pool(poolOthers).Length(32).Obj()
		claim.Annotations = map[string]string{v1alpha1.AnnotationUseGranted: poolOthers}
		return h.create(ctx, claim)
	case 2:
		claim := b.Pool(poolOthers).Length(32).Obj()
		claim.Annotations = map[string]string{v1alpha1.AnnotationRequestedBy: "system:serviceaccount:others:deployer"}
		return h.create(ctx, claim)
	default:
		claim := b.Class("hosts").Obj()
		claim.Status.Phase, claim.Status.AllocatedCIDR = v1alpha1.ClaimBound, h.knownClaim.Spec.CIDR
		return h.create(ctx, claim)
	}
}

// forgeStatus writes into the status of one of its claims.
func (h *hostile) forgeStatus(ctx context.Context, report func(error)) {
	claim := h.any()
	if claim == nil || h.client.Get(ctx, client.ObjectKeyFromObject(claim), claim) != nil {
		return
	}
	claim.Status.AllocatedCIDR = h.knownClaim.Spec.CIDR
	report(h.client.Update(ctx, claim))
}

// finalizers makes a claim stay when it is deleted, for a while.
func (h *hostile) finalizers(ctx context.Context, report func(error)) {
	claim := build.Claim(hostileNamespace, h.name()).Class("hosts").Finalizer(ownFinalizer).Obj()
	err := h.client.Create(ctx, claim)
	report(err)
	if err != nil {
		return
	}
	report(h.client.Delete(ctx, claim))
	if h.random.IntN(10) > 0 {
		report(h.client.Patch(ctx, claim, build.Merge(`{"metadata":{"finalizers":null}}`)))
	}
}

// poolsOfOthers asks for blocks, and for pools, of pools that it may not use.
func (h *hostile) poolsOfOthers(ctx context.Context) error {
	pool := []string{poolOwn, poolOthers, poolInner}[h.random.IntN(3)]
	if h.random.IntN(3) == 0 {
		return h.client.Create(ctx, build.Pool(h.name()).Child(pool, 30).In(hostileNamespace))
	}
	claim := build.Claim(hostileNamespace, h.name()).Pool(pool).Length(32).Obj()
	return h.create(ctx, claim)
}

// records writes to the register itself.
func (h *hostile) records(ctx context.Context) error {
	record := &v1alpha1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: hostileNamespace, Name: h.name()}}
	if claim := h.any(); claim != nil && claim.Spec.AllocationName != "" {
		record.Name = claim.Spec.AllocationName
	}
	switch h.random.IntN(3) {
	case 0:
		record.Spec = v1alpha1.IPAllocationSpec{
			CIDR: h.knownClaim.Spec.CIDR, IPFamily: v1alpha1.IPv4, Purpose: v1alpha1.PurposeClaim,
			PoolRef:  &v1alpha1.RecordPoolReference{Kind: v1alpha1.PoolKindIPPool, Name: poolOwn},
			ClaimRef: v1alpha1.ClaimReference{APIGroup: v1alpha1.GroupVersion.Group, Kind: "IPClaim", Name: "x"},
		}
		return h.client.Create(ctx, record)
	case 1:
		return h.client.Delete(ctx, record)
	}
	return h.client.Patch(ctx, record, build.Merge(`{"metadata":{"finalizers":null}}`))
}

// notATenants sends requests to which the role edit has no right.
func (h *hostile) notATenants(ctx context.Context) error {
	switch h.random.IntN(5) {
	case 0:
		return h.client.Create(ctx, build.Pool(h.name()).CIDR("10.99.0.0/16").Obj())
	case 1:
		return h.client.Delete(ctx, build.Pool(poolOwn).Obj())
	case 2:
		return h.client.Create(ctx, build.AddressClaim(hostileNamespace, h.name()).Pool(poolCommon).Obj())
	case 3:
		return h.client.DeleteAllOf(ctx, &v1alpha1.IPClaim{}, client.InNamespace(honestNamespace))
	}
	return h.client.List(ctx, &v1alpha1.IPClaimList{}, client.InNamespace(honestNamespace))
}

// edit changes fields without effect, as fast as it can.
func (h *hostile) edit(ctx context.Context, report func(error)) {
	claim := h.any()
	if claim == nil {
		return
	}
	for range 10 {
		patch := fmt.Sprintf(`{"metadata":{"labels":{"n":"%d"}}}`, h.random.Uint64())
		report(h.client.Patch(ctx, claim, build.Merge(patch)))
	}
}

// deleteEverything deletes, rarely, all claims of one of its namespaces.
func (h *hostile) deleteEverything(ctx context.Context, report func(error)) {
	if h.random.IntN(6) > 0 {
		return
	}
	ns := hostileNamespace
	if h.random.IntN(2) == 0 {
		ns = crowdNamespace
	}
	report(h.client.DeleteAllOf(ctx, &v1alpha1.IPClaim{}, client.InNamespace(ns)))
}
