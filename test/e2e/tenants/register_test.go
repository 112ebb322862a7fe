package tenants

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// register watches all IPAllocations, and counts those of the hostile project.
type register struct {
	stop context.CancelFunc
	done sync.WaitGroup

	mu sync.Mutex
	// all has the records of the hostile project.
	all map[types.UID]*v1alpha1.IPAllocation
	// most is the highest number of its records at one time, by pool, and retained.
	most map[string]int
	// violations has records that should never have been made.
	violations []string
}

const retained = "retained"

// limits has those of the pools that have one for each project.
var limits = map[string]int{poolCommon: limitCommon, poolKept: limitKept, poolTight: limitTight}

// watchRegister begins to watch.
func (w *world) watchRegister() *register {
	w.Helper()
	ctx, stop := context.WithCancel(w.Context())
	r := &register{stop: stop, all: map[types.UID]*v1alpha1.IPAllocation{}, most: map[string]int{}}
	events, err := w.Watch(ctx, &v1alpha1.IPAllocationList{})
	suite.Must(w, err)
	r.done.Go(func() {
		for e := range events.ResultChan() {
			if ctx.Err() != nil {
				return
			}
			record, ok := e.Object.(*v1alpha1.IPAllocation)
			if !ok {
				r.violated(fmt.Sprintf("the watch failed: %v", e.Object))
				return
			}
			r.see(e.Type, record)
		}
		if ctx.Err() == nil {
			r.violated("the watch ended")
		}
	})
	return r
}

func (r *register) see(event watch.EventType, record *v1alpha1.IPAllocation) {
	if record.Spec.Project != hostileProject {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if event == watch.Deleted {
		delete(r.all, record.UID)
		return
	}
	r.all[record.UID] = record
	pool := record.Spec.PoolRef
	if pool != nil && pool.Kind == v1alpha1.PoolKindIPPool && slices.Contains([]string{poolOwn, poolOthers, poolInner}, pool.Name) {
		r.violations = append(r.violations, fmt.Sprintf("%s/%s records %s of pool %s", record.Namespace, record.Name, record.Spec.CIDR, pool.Name))
	}
	for name, count := range r.counts() {
		r.most[name] = max(r.most[name], count)
	}
}

// counts returns how many records there are, by IPPool, and retained.
func (r *register) counts() map[string]int {
	counts := map[string]int{}
	for _, record := range r.all {
		if pool := record.Spec.PoolRef; pool != nil && pool.Kind == v1alpha1.PoolKindIPPool {
			counts[pool.Name]++
		}
		if record.Spec.State == v1alpha1.AllocationRetained {
			counts[retained]++
		}
	}
	return counts
}

func (r *register) violated(how string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.violations = append(r.violations, how)
}

// tame returns the states that the hostile project never reached.
func (r *register) tame() (missing []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for pool, limit := range limits {
		if r.most[pool] < limit {
			missing = append(missing, fmt.Sprintf("pool %s: %d records at most, the limit is %d", pool, r.most[pool], limit))
		}
	}
	if r.most[retained] == 0 {
		missing = append(missing, "nothing was retained")
	}
	return missing
}

func (r *register) end() {
	r.stop()
	r.done.Wait()
}

// judge fails if the hostile project got blocks that it must not have, or more than it may.
func (r *register) judge(t *testing.T) {
	t.Helper()
	t.Logf("records of the hostile project, at most: %v; at the end: %v", r.most, r.counts())
	for _, violation := range r.violations[:min(len(r.violations), 10)] {
		t.Errorf("%s", violation)
	}
	for pool, limit := range limits {
		// A record that exceeds the limit exists until the request that made it gives way: one for
		// each client.
		if most := r.most[pool]; most > limit+attackers {
			t.Errorf("pool %s: %d records at once, the limit is %d", pool, most, limit)
		}
	}
	if most := r.most[poolOpen]; most > shareOpen+attackers {
		t.Errorf("pool %s: %d records of creates that were refused, the share of a namespace is %d", poolOpen, most, shareOpen)
	}
}

// Answers, as they are counted.
const (
	stored           = "stored"
	limitReached     = "limit reached"
	quotaExceeded    = "quota exceeded"
	tooManyUnclaimed = "too many unclaimed"
	tooManyWaiting   = "too many waiting"
	tryAgain         = "try again"
	notAllowed       = "not allowed"
	notFound         = "not found"
	conflict         = "conflict"
	invalid          = "invalid"
	noRoom           = "no room"
	cutOff           = "cut off"
	noConnection     = "no connection"
	// pathTold is an answer with the secret path of a webhook.
	pathTold = "TOLD THE PATH"
	// forged is the answer of a webhook to a client that is no API server.
	forged = "FORGED"
	// defect is an answer that no client should get.
	defect = "DEFECT"
)

// answerOf returns the answer as which an error is counted.
func answerOf(err error) string {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return stored
	case errors.Is(err, errCutOff), errors.Is(err, errNoConnection), errors.Is(err, errForged):
		return err.Error()
	case secretPath.MatchString(err.Error()):
		return pathTold
	case strings.Contains(err.Error(), confidential):
		return defect // it has information about others
	case !errors.As(err, &status):
		return defect
	}
	text := err.Error()
	switch status.Status().Code {
	case http.StatusForbidden:
		switch {
		case strings.Contains(text, "exceeded limit"):
			return limitReached
		case strings.Contains(text, "exceeded quota"):
			return quotaExceeded
		}
		return notAllowed
	case http.StatusTooManyRequests:
		switch {
		case strings.Contains(text, "unclaimed"):
			return tooManyUnclaimed
		case strings.Contains(text, "wait"):
			return tooManyWaiting
		}
		return tryAgain
	case http.StatusNotFound:
		return notFound
	case http.StatusConflict:
		return conflict
	case http.StatusUnprocessableEntity, http.StatusBadRequest, http.StatusRequestEntityTooLarge:
		return invalid
	case http.StatusInsufficientStorage:
		return noRoom
	}
	return defect
}

// dryRun asks which block it would get, and which blocks are free in which pools. An answer with
// information about other tenants is a defect.
func (h *hostile) dryRun(ctx context.Context) error {
	b := build.Claim(hostileNamespace, h.name())
	switch h.random.IntN(3) {
	case 0:
		b.Class("scarce")
	case 1:
		b.Pool(poolOwn).Length(32) // of the honest tenant
	default:
		b.Class("hosts")
	}
	claim := b.Obj()
	err := h.client.Create(ctx, claim, client.DryRunAll)
	if err == nil && (strings.Contains(fmt.Sprint(claim.Status), confidential) || slices.ContainsFunc(claim.Status.Candidates, isOfOthers)) {
		return fmt.Errorf("a dry run has information about others: %v", claim.Status)
	}
	return err
}

// isOfOthers reports whether a candidate is a pool that the hostile tenant may not use.
func isOfOthers(c v1alpha1.CandidatePool) bool {
	return slices.Contains([]string{poolOwn, poolOthers, poolInner}, c.PoolRef.Name)
}

// oneNameAtOnce sends several creates of which all but one are refused after each had a block
// recorded.
func (h *hostile) oneNameAtOnce(ctx context.Context, report func(error)) {
	claim := build.Claim(hostileNamespace, h.name()).Class("hosts").Obj()
	h.claims = append(h.claims, claim)
	var creating sync.WaitGroup
	for range 4 {
		creating.Go(func() { report(h.client.Create(ctx, claim.DeepCopy())) })
	}
	creating.Wait()
}

// manyLabels is the number of labels of a large object.
const manyLabels = 13_000

// large makes a claim that is large by its labels, its annotations or its selector, or sends its
// dry run.
func (h *hostile) large(ctx context.Context) error {
	claim := build.Claim(hostileNamespace, h.name()).Class("hosts").Obj()
	switch h.random.IntN(4) {
	case 0:
		claim.Annotations = map[string]string{"example.com/note": strings.Repeat("x", 200<<10)}
	case 1:
		claim.Labels = map[string]string{}
		for i := range manyLabels {
			claim.Labels[fmt.Sprintf("example.com/label-%d", i)] = "value"
		}
	case 2:
		claim.Labels = map[string]string{}
		for i := range manyLabels {
			claim.Labels[fmt.Sprintf("not a label %d", i)] = "not a value!"
		}
	default:
		values := make([]v1alpha1.LabelValue, manyLabels)
		for i := range values {
			values[i] = v1alpha1.LabelValue(fmt.Sprintf("value-%d", i))
		}
		claim.Spec = v1alpha1.IPClaimSpec{PoolSelector: &v1alpha1.PoolSelector{MatchExpressions: []v1alpha1.PoolSelectorExpression{
			{Key: "example.com/key", Operator: metav1.LabelSelectorOpIn, Values: values},
		}}}
	}
	if h.random.IntN(2) == 0 {
		return h.client.Create(ctx, claim, client.DryRunAll)
	}
	return h.create(ctx, claim)
}

// largest sends the largest objects that the API server lets pass, and the largest that admission
// does.
func (h *hostile) largest(ctx context.Context, report func(error)) {
	claim := build.Claim(hostileNamespace, h.name()).Class("hosts").Obj()
	switch h.random.IntN(4) {
	case 0:
		claim.Labels = map[string]string{}
		for n := range 20_000 {
			claim.Labels[fmt.Sprint("-", n)] = "/"
		}
		report(h.client.Create(ctx, claim, client.DryRunAll))
	case 1:
		claim.Labels = map[string]string{}
		for n := range 13_000 {
			claim.Labels[fmt.Sprintf("%060d", n)] = "x"
		}
		report(h.client.Create(ctx, claim))
	case 2:
		claim.Spec.CIDR = strings.Repeat("x", 1<<20)
		report(h.client.Create(ctx, claim))
	default:
		report(h.client.Create(ctx, selectingMuch(build.Claim(crowdNamespace, h.name()).Length(32).Obj())))
		// The selection by its labels is evaluated for each claim that waits.
		pool := build.Pool(fmt.Sprintf("labeled-%d", h.random.IntN(quotaLocalPools))).CIDR("10.81.0.0/24").In(crowdNamespace)
		report(h.client.Create(ctx, pool))
		patch := fmt.Sprintf(`{"metadata":{"labels":{"a":"%d"}}}`, h.random.Uint64())
		report(h.client.Patch(ctx, pool, build.Merge(patch)))
	}
}

// selectingMuch gives a claim the largest selector that it may have.
func selectingMuch(claim *v1alpha1.IPClaim) *v1alpha1.IPClaim {
	by := &v1alpha1.PoolSelector{}
	for term := range v1alpha1.MaxSelectorTerms {
		e := v1alpha1.PoolSelectorExpression{Key: fmt.Sprint("key-", term), Operator: metav1.LabelSelectorOpIn}
		for value := range v1alpha1.MaxSelectorValues {
			e.Values = append(e.Values, v1alpha1.LabelValue(fmt.Sprintf("%063d", value)))
		}
		by.MatchExpressions = append(by.MatchExpressions, e)
	}
	claim.Spec.ClassName, claim.Spec.PoolRef, claim.Spec.PoolSelector = "", nil, by
	return claim
}
