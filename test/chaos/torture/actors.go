package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/test/chaos/torture/witness"
)

// actor represents a client of one kind. Its methods are called from one goroutine.
type actor interface {
	// act makes one or a few calls. An error means only that it did not go well.
	act(ctx context.Context) error
}

// role makes actors of one kind.
type role struct {
	name string
	// share is the percentage of clients that have it.
	share int
	make  func(*party, int, *rand.Rand) actor
}

// roles returns the kinds of clients. The first are made first, so that also a small cast has one
// of each.
func roles() []role {
	return []role{
		{"pools", 8, newPoolActor},
		{"addresses", 20, newAddressActor},
		{"clusters", 8, newClusterActor},
		{"ranges", 4, newRangesActor},
		{"claims", 60, newClaimActor},
	}
}

// cast returns the role of each of the clients.
func cast(clients int) []role {
	var all []role
	left := clients
	for i, r := range roles() {
		n := max(2, clients*r.share/100)
		if i == len(roles())-1 {
			n = left
		}
		for range n {
			all = append(all, r)
		}
		left -= n
	}
	return all
}

// perform lets an actor act until ctx is done. After an error it pauses, as a well-behaved client
// does.
func (w *world) perform(ctx context.Context, r role, n int) error {
	c, err := cluster.NewClient(w.tenant)
	if err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(w.config.Seed, uint64(n)+1))
	a := r.make(&party{world: w, who: fmt.Sprintf("%s-%d", r.name, n), Client: c}, n, random)
	for ctx.Err() == nil {
		if a.act(ctx) != nil && !wait(ctx, between(random, 10*time.Millisecond, 150*time.Millisecond)) {
			return nil
		}
	}
	return nil
}

// callTimeout bounds one call of a client.
const callTimeout = 10 * time.Second

// party represents a participant: its name, and its own connection.
type party struct {
	*world
	who string
	client.Client
}

// attempt represents one try to make an object.
type attempt struct {
	what string
	obj  client.Object
	// rehearsed attempts are dry runs: nothing may be stored.
	rehearsed bool
	do        func(context.Context) error
}

// try makes an attempt, and passes the answer to the witness.
func (p *party) try(ctx context.Context, a attempt) error {
	id := strconv.FormatInt(p.lastAttempt.Add(1), 10)
	annotations := a.obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[witness.AttemptAnnotation] = id
	a.obj.SetAnnotations(annotations)
	if a.rehearsed {
		p.witness.Never(id, "a dry run")
		p.witness.Rehearsed(a.obj.GetNamespace(), a.obj.GetName())
	}
	p.note(p.asked, id)
	err := p.call(ctx, "attempt "+id+": "+a.what, a.do, func() string {
		return fmt.Sprintf("%s %s %s", a.obj.GetName(), blockOf(a.obj), a.obj.GetUID())
	})
	switch {
	case err == nil && !a.rehearsed:
		p.answered(id, a.obj)
	case err != nil && isRefusal(err):
		p.witness.Never(id, "refused: "+err.Error())
	}
	return err
}

// create makes an attempt to create an object.
func (p *party) create(ctx context.Context, what string, obj client.Object) error {
	return p.try(ctx, attempt{what: what, obj: obj, do: func(ctx context.Context) error { return p.Create(ctx, obj) }})
}

func (p *party) answered(id string, obj client.Object) {
	revision, err := strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		return // the object is not stored
	}
	block := blockOf(obj)
	p.witness.Answered(witness.Answer{Attempt: id, UID: string(obj.GetUID()), Block: block, Revision: revision})
	if claim, ok := obj.(*v1alpha1.IPClaim); block.IsValid() && (!ok || claim.Spec.AllocationName != "") {
		p.service.allocated()
	}
}

// call makes a call, and puts it on the time line.
func (p *party) call(ctx context.Context, what string, do func(context.Context) error, result func() string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	began := time.Now()
	err := do(ctx)
	m := moment{Began: began, Ended: time.Now(), Who: p.who, What: what}
	switch {
	case err != nil:
		m.Result = err.Error()
	case result != nil:
		m.Result = result()
	}
	p.timeline.add(m)
	return err
}

// remove deletes an object.
func (p *party) remove(ctx context.Context, obj client.Object) error {
	if obj.GetUID() != "" {
		p.note(p.releasing, string(obj.GetUID()))
	}
	return p.call(ctx, fmt.Sprintf("delete %T %s/%s %s", obj, obj.GetNamespace(), obj.GetName(), obj.GetUID()), func(ctx context.Context) error {
		return p.Delete(ctx, obj)
	}, nil)
}

// note records when something was first asked for.
func (w *world) note(times map[string]time.Time, key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := times[key]; !ok {
		times[key] = time.Now()
	}
}

// isRefusal reports whether an error is a refusal by the API server, after which nothing is stored.
// After any other error, also one of the API server about itself, the object may be stored.
func isRefusal(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 || code == http.StatusInsufficientStorage
}

// blockOf returns the block that an object names as its own; for a claim that only asks for one,
// none.
func blockOf(obj client.Object) netip.Prefix {
	cidr := ""
	switch o := obj.(type) {
	case *v1alpha1.IPClaim:
		cidr = o.Spec.CIDR
	case *v1alpha1.IPPool:
		cidr = o.Spec.CIDR
	}
	block, err := netip.ParsePrefix(cidr)
	if err != nil {
		return netip.Prefix{}
	}
	return block
}
