package restore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// restoration holds one dump that is being restored.
type restoration struct {
	w *world
	// conflicts has the messages about those that did not come back as they were.
	conflicts map[string]string

	mu  sync.Mutex
	new int
}

// create brings one object back. It is refused, and so reported as a conflict, if another holder
// has its block, or its name.
func (r *restoration) create(obj *unstructured.Unstructured) {
	r.w.Helper()
	err := r.w.Create(r.w.Context(), obj)
	switch {
	case err == nil:
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		r.conflicts[nameOf(obj)] = "refused: " + err.Error()
	default:
		r.w.Errorf("%s was refused: %v", nameOf(obj), err)
	}
}

func nameOf(obj client.Object) string {
	return obj.GetObjectKind().GroupVersionKind().Kind + "/" + obj.GetNamespace() + "/" + obj.GetName()
}

// newcomers starts clients that create new claims of all kinds, the first of them before it
// returns, and a Cluster each. The function end waits for all.
func (r *restoration) newcomers(clients int) (end func()) {
	ctx, cancel := context.WithCancel(r.w.Context())
	var working, begun sync.WaitGroup
	begun.Add(clients)
	for n := range clients {
		as := r.w.Client(r.w.Config())
		working.Go(func() {
			for i := 0; i < 12 && ctx.Err() == nil; i++ {
				name := fmt.Sprintf("new-%d-%d", n, i)
				for _, obj := range []client.Object{
					build.Claim(team, "gold-"+name).Class("gold").Length(31).Obj(),
					build.Claim(team, "parent-"+name).Pool("parent").Length(28).Obj(),
					build.Claim(team, "child-"+name).Pool("child").Length(32).Obj(),
					build.Claim(team, "own-"+name).LocalPool("own").Length(32).Obj(),
					build.AddressClaim(team, "pool-"+name).Pool("machines").Obj(),
					build.Claim(team, "networks-"+name).Class(networks).Obj(),
				} {
					if as.Create(ctx, obj) == nil {
						r.mu.Lock()
						r.new++
						r.mu.Unlock()
					}
				}
				if i == 1 {
					begun.Done()
				}
			}
			_ = wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
				return as.Create(ctx, asking(fmt.Sprintf("new-%d", n))) == nil, nil // refused as long as no pool is ready
			})
		})
	}
	begun.Wait()
	return func() {
		working.Wait()
		cancel()
	}
}

// judge waits until everything stands still, and fails the test if a claim came back with another
// block than it had, or without one and without a conflict that is reported.
func (r *restoration) judge(saved dump) {
	r.w.Helper()
	r.w.Eventually(func() []string { return firsts(r.renumbered(saved), r.unsettled()) }).Should(BeEmpty())
}

// firsts returns the first few of each.
func firsts(lists ...[]string) []string {
	var few []string
	for _, l := range lists {
		few = append(few, l[:min(len(l), 6)]...)
	}
	return few
}

func (r *restoration) unsettled() []string {
	waiting := map[string]bool{}
	for name := range r.conflicts {
		waiting[name] = true
	}
	wrong, err := r.w.wrong(r.w.Context(), waiting)
	if err != nil {
		return []string{err.Error()}
	}
	return wrong
}

func (r *restoration) renumbered(saved dump) []string {
	var wrong []string
	note := func(obj *unstructured.Unstructured, why string) {
		if why != "" {
			wrong = append(wrong, nameOf(obj)+" "+why)
		}
	}
	for _, was := range saved.objectsOf(pools, locals) {
		note(was, r.poolIs(was))
	}
	for _, was := range saved.objectsOf(claims) {
		note(was, r.claimIs(was))
	}
	for _, was := range saved.objectsOf(clusters) {
		note(was, r.clusterIs(was))
	}
	for _, was := range saved.objectsOf(addresses) {
		note(was, r.addressIs(was))
	}
	return wrong
}

func cidr(obj *unstructured.Unstructured) string {
	text, _, _ := unstructured.NestedString(obj.Object, "spec", "cidr")
	return text
}

// poolIs returns the fault of a pool that came back, if there is any.
func (r *restoration) poolIs(was *unstructured.Unstructured) string {
	current := convert.NewPool(ipam.PoolKind(was.GetKind()))
	if err := r.w.Get(r.w.Context(), client.ObjectKeyFromObject(was), current); err != nil {
		if r.conflicts[nameOf(was)] != "" {
			return ""
		}
		return err.Error()
	}
	if current.PoolSpec().CIDR != cidr(was) {
		return "had " + cidr(was) + " and has " + current.PoolSpec().CIDR
	}
	delete(r.conflicts, nameOf(was))
	ready := meta.FindStatusCondition(current.PoolStatus().Conditions, v1alpha1.ConditionReady)
	if ready != nil && ready.Reason == v1alpha1.ReasonConflict && strings.Contains(ready.Message, "held by") {
		r.conflicts[nameOf(was)] = ready.Message
	}
	return ""
}

// claimIs returns the fault of an IPClaim that came back, if there is any. The claim of a Cluster comes
// back even if its create is refused.
func (r *restoration) claimIs(was *unstructured.Unstructured) string {
	claim := &v1alpha1.IPClaim{}
	err := r.w.Get(r.w.Context(), client.ObjectKeyFromObject(was), claim)
	switch {
	case err != nil && r.conflicts[nameOf(was)] != "" && was.GetLabels()[clusterv1.ClusterNameLabel] == "":
		return ""
	case err != nil:
		return err.Error()
	case claim.Spec.CIDR != cidr(was):
		return "had " + cidr(was) + " and has " + claim.Spec.CIDR
	case claim.Status.Phase == v1alpha1.ClaimBound:
		delete(r.conflicts, nameOf(was))
		return ""
	}
	if r.conflicts[poolOf(claim)] != "" {
		r.conflicts[nameOf(was)] = "its pool is in conflict"
		return ""
	}
	pending := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ConditionPending)
	if pending == nil || pending.Reason != v1alpha1.ReasonConflict || !strings.Contains(pending.Message, "held by") {
		return fmt.Sprintf("is %s and says %s", claim.Status.Phase, said(claim.Status.Conditions))
	}
	r.conflicts[nameOf(was)] = pending.Message
	return ""
}

// addressIs returns the fault of an IPAddress that came back, and of its claim, if there is any.
func (r *restoration) addressIs(was *unstructured.Unstructured) string {
	address, claim := &ipamv1.IPAddress{}, &ipamv1.IPAddressClaim{}
	for _, obj := range []client.Object{address, claim} {
		if err := r.w.Get(r.w.Context(), client.ObjectKeyFromObject(was), obj); err != nil {
			return err.Error()
		}
	}
	had, _, _ := unstructured.NestedString(was.Object, "spec", "address")
	if address.Spec.Address != had && r.conflicts[nameOf(was)] == "" {
		return "had " + had + " and has " + address.Spec.Address
	}
	ready := meta.FindStatusCondition(claim.Status.Conditions, ipamv1.IPAddressClaimReadyCondition)
	name := "IPAddressClaim/" + was.GetNamespace() + "/" + was.GetName()
	switch {
	case ready == nil:
		return "has a claim that says nothing"
	case claim.Status.AddressRef.Name == was.GetName():
		delete(r.conflicts, name)
		return ""
	case ready.Reason == ipamv1.IPAddressClaimReadyAllocationFailedReason && strings.Contains(ready.Message, "conflict"):
		r.conflicts[name] = ready.Message
		return ""
	}
	return "has a claim that says " + ready.Message
}
