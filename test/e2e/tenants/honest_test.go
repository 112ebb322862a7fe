package tenants

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/perf/bench/figures"
)

const (
	// confidential is in the names of the honest tenant's claims: no answer to another tenant may
	// have it.
	confidential = "confidential"
	// perSecond is the number of claims that the honest tenant makes.
	perSecond = 10
	// keeps is the number of claims that it keeps, beside those of its private pool.
	keeps = 60
	// keepsScarce is the number of them of the class that has little room.
	keepsScarce = 2
	// waitsEvery is the number of claims after which it makes one that must wait, and scarceEvery
	// after which it makes one of the class that has little room.
	waitsEvery, scarceEvery = 5, 7
)

// honest represents a tenant who makes and deletes claims at a steady pace: some of a pool that all
// share, some of a private pool that is full.
type honest struct {
	w       *world
	client  client.WithWatch
	pace    flowcontrol.RateLimiter
	made    int
	held    []*v1alpha1.IPClaim // of the shared pool, oldest first
	scarce  []*v1alpha1.IPClaim // of the class that has little room, oldest first
	holding []*v1alpha1.IPClaim // of its private pool, which is full
	// waits has for each claim the time that it waited after the room for it was released.
	waits []time.Duration
}

// creates holds the creates of a while.
type creates struct {
	took []time.Duration
	// waited is the number of claims of the class with little room that were bound a moment later.
	waited int
	// failed has the result of each that was not served in time.
	failed []string
}

func (c creates) String() string {
	return fmt.Sprintf("%d, of which %d not served, and %d a moment later; %s", len(c.took), len(c.failed), c.waited, figuresOf(c.took))
}

func figuresOf(took []time.Duration) string {
	p := figures.PercentilesOf(took)
	if p == nil {
		return "none"
	}
	return fmt.Sprintf("p50 %.1f ms, p95 %.1f ms, at most %.1f ms", p.P50, p.P95, p.Max)
}

func newHonest(w *world) *honest {
	w.Helper()
	h := &honest{w: w, client: w.As("alice"), pace: flowcontrol.NewTokenBucketRateLimiter(perSecond, 1)}
	for range 4 {
		claim := h.claim().Pool(poolOwn).Length(32).Obj()
		suite.Must(w, h.client.Create(w.Context(), claim))
		h.holding = append(h.holding, claim)
	}
	return h
}

func (h *honest) claim() *build.ClaimBuilder {
	h.made++
	return build.Claim(honestNamespace, fmt.Sprintf("%s-%d", confidential, h.made))
}

// measured makes and deletes claims until it is enough.
func (h *honest) measured(ctx context.Context, enough func(creates) bool) creates {
	h.w.Helper()
	var c creates
	for !enough(c) {
		suite.Must(h.w, h.pace.Wait(ctx))
		h.held = h.create(ctx, &c, "hosts", h.held, keeps)
		if h.made%waitsEvery == 0 {
			h.wait(ctx, &c)
		}
		if h.made%scarceEvery == 0 {
			h.scarce = h.create(ctx, &c, "scarce", h.scarce, keepsScarce)
		}
	}
	return c
}

// create makes a claim, which has its block in the answer, and deletes the oldest of those that it
// has if these are more than it keeps. It returns the claims that it has then.
func (h *honest) create(ctx context.Context, c *creates, class string, has []*v1alpha1.IPClaim, keeps int) []*v1alpha1.IPClaim {
	h.w.Helper()
	claim := h.claim().Class(class).Obj()
	began := time.Now()
	err := h.client.Create(ctx, claim)
	took := time.Since(began)
	c.took = append(c.took, took)
	switch {
	case err != nil:
		c.failed = append(c.failed, fmt.Sprintf("%s of class %s: %v", claim.Name, class, err))
		return has
	case claim.Spec.CIDR == "" && class == "scarce":
		// A tenant whose project may have one more just now is before it, and not for long.
		if after, bound := h.await(ctx, claim, v1alpha1.ConditionBound); !bound {
			c.failed = append(c.failed, fmt.Sprintf("%s of class %s still waits after %s", claim.Name, class, after))
		}
		c.waited++
	case claim.Spec.CIDR == "":
		c.failed = append(c.failed, fmt.Sprintf("%s of class %s waits", claim.Name, class))
	case took > answeredWithin:
		c.failed = append(c.failed, fmt.Sprintf("%s took %s", claim.Name, took))
	}
	has = append(has, claim)
	if len(has) > keeps {
		suite.Must(h.w, h.client.Delete(ctx, has[0]))
		has = has[1:]
	}
	return has
}

// wait makes a claim in the pool that is full, which its status reports, and which is bound once
// another one is deleted.
func (h *honest) wait(ctx context.Context, c *creates) {
	h.w.Helper()
	claim := h.claim().Pool(poolOwn).Length(32).Obj()
	suite.Must(h.w, h.client.Create(ctx, claim))
	if claim.Spec.CIDR != "" {
		h.w.Fatalf("%s of the full pool was given %s", claim.Name, claim.Spec.CIDR)
	}
	if _, ok := h.await(ctx, claim, v1alpha1.ConditionExhausted); !ok {
		c.failed = append(c.failed, claim.Name+" does not report in time that the pool is full")
	}
	suite.Must(h.w, h.client.Delete(ctx, h.holding[0]))
	h.holding = append(h.holding[1:], claim)
	took, bound := h.await(ctx, claim, v1alpha1.ConditionBound)
	if !bound {
		c.failed = append(c.failed, fmt.Sprintf("%s is not bound %s after the release", claim.Name, took))
		return
	}
	h.waits = append(h.waits, took)
}

// await watches a claim until the condition is true, and no longer than answeredWithin.
func (h *honest) await(ctx context.Context, claim *v1alpha1.IPClaim, condition string) (time.Duration, bool) {
	h.w.Helper()
	began := time.Now()
	ctx, stop := context.WithTimeout(ctx, answeredWithin)
	defer stop()
	events, err := h.client.Watch(ctx, &v1alpha1.IPClaimList{}, client.InNamespace(claim.Namespace), client.MatchingFields{"metadata.name": claim.Name},
		&client.ListOptions{Raw: &metav1.ListOptions{}})
	suite.Must(h.w, err)
	defer events.Stop()
	for e := range events.ResultChan() {
		if now, ok := e.Object.(*v1alpha1.IPClaim); ok && e.Type != watch.Deleted && meta.IsStatusConditionTrue(now.Status.Conditions, condition) {
			now.DeepCopyInto(claim)
			return time.Since(began), true
		}
	}
	return time.Since(began), false
}

// tame returns the kinds of requests of which there were too few for a judgment.
func (h *honest) tame(c creates) (missing []string) {
	if len(c.took) < 50 {
		missing = append(missing, fmt.Sprintf("%d honest creates", len(c.took)))
	}
	if len(h.waits) < 10 {
		missing = append(missing, fmt.Sprintf("%d honest claims that waited", len(h.waits)))
	}
	return missing
}

// judge fails if an honest request was not served, or not in time.
func (h *honest) judge(c creates) {
	h.w.Helper()
	for _, failure := range c.failed[:min(len(c.failed), 10)] {
		h.w.Errorf("the honest tenant: %s", failure)
	}
}
