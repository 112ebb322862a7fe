package ipaddressclaim

import (
	"context"
	"fmt"
	"slices"
	"strings"

	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/story"
)

// changedRecords expects that a claim is enqueued with its record, unless this controller has just
// made it.
func changedRecords(e *addresses) {
	e.Applied(hostPool().Obj(), claim("a").Pool("hosts").Obj())
	q := e.Started(e.controller.records())
	e.Reconciled("a").Served("10.0.0.2")
	q.Enqueued()
	record := allocation(e.record("a"))
	story.Edited(e.World, record, func(r *v1alpha1.IPAllocation) { r.Spec.ReclaimPolicy = v1alpha1.ReclaimRetain })
	q.Enqueued("team/a")
	e.Forced(record)
	q.Enqueued("team/a")
	admitted := story.Block("b", "hosts", "10.0.0.9/32")
	admitted.Holder = holderNamed(story.Team, "b")
	e.Recorded(admitted)
	q.Enqueued("team/b")
	e.Recorded(story.Block("c", "hosts", "10.0.0.10/32")) // of an IPClaim
	q.Enqueued()
}

// changedPools expects that those claims are enqueued that wait for a change, and those of a pool
// or a class that is not paused any more, and IPAddresses whose pool can exist now.
func changedPools(e *addresses) {
	e.controller.Client = indexed{e.K8s}
	q := e.Started(e.controller.changes())
	e.Applied(claim("a").Pool("hosts").Obj(), claim("b").Class("gold").Obj(), claim("c").Pool("others").Obj())
	e.Reconciled("a").NotReady(v1alpha1.ReasonPoolNotFound)
	e.Created(address("d", "10.0.0.9"))
	e.Reconciled("d")
	e.Created(address("e", "10.0.0.10"))
	e.Reconciled("e")
	q.Enqueued()
	pool := hostPool().Classes("gold").Obj()
	e.Applied(pool)
	q.Enqueued("team/a", "team/d", "team/e")
	e.Reconciled("a").Ready()
	e.Reconciled("d")
	e.Reconciled("e")
	story.Edited(e.World, pool, func(p *v1alpha1.IPPool) { p.Annotations = map[string]string{v1alpha1.AnnotationPaused: ""} })
	q.Enqueued()
	story.Edited(e.World, pool, func(p *v1alpha1.IPPool) { p.Annotations = nil })
	q.Enqueued("team/a", "team/b")
}

// indexed lists claims and IPAddresses as the cache does, by index.
type indexed struct{ client.WithWatch }

// List implements client.Reader.
func (i indexed) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	options := (&client.ListOptions{}).ApplyOptions(opts)
	if err := i.WithWatch.List(ctx, list, client.InNamespace(options.Namespace)); err != nil {
		return err
	}
	field, value, _ := strings.Cut(options.FieldSelector.String(), "=")
	switch list := list.(type) {
	case *ipamv1.IPAddressClaimList:
		list.Items = slices.DeleteFunc(list.Items, func(c ipamv1.IPAddressClaim) bool {
			return field != byTarget || !slices.Contains(indexedTarget(&c), value)
		})
	case *ipamv1.IPAddressList:
		list.Items = slices.DeleteFunc(list.Items, func(a ipamv1.IPAddress) bool {
			return field != byAddress || !slices.Contains(indexedAddress(&a), value)
		})
	}
	return nil
}

// changedClaims expects that a claim is enqueued when it is shown, or when its IPAddress is, unless
// it is up to date.
func changedClaims(e *addresses) {
	e.Applied(hostPool().Obj(), claim("a").Pool("hosts").Obj(), claim("b").Pool("hosts").Obj())
	e.Reconciled("a").Served("10.0.0.2")
	q := e.Started(e.controller.records())
	for name, want := range map[string][]string{"a": nil, "b": {"team/b"}} {
		for _, obj := range []client.Object{e.stored(name), address(name, "")} {
			handler := e.controller.addresses()
			if _, is := obj.(*ipamv1.IPAddressClaim); is {
				handler = e.controller.claims()
			}
			handler.Create(e.t.Context(), event.CreateEvent{Object: obj}, q)
			q.Enqueued(want...)
			handler.Update(e.t.Context(), event.UpdateEvent{ObjectOld: obj, ObjectNew: obj}, q)
			q.Enqueued(want...)
			handler.Delete(e.t.Context(), event.DeleteEvent{Object: obj}, q)
			q.Enqueued("team/" + name)
		}
	}
	story.Edited(e.World, address("a", ""), func(a *ipamv1.IPAddress) { a.Labels = nil })
	e.controller.claims().Create(e.t.Context(), event.CreateEvent{Object: e.stored("a")}, q)
	q.Enqueued("team/a")
}

// rightAskedAgain has claims name a pool of another project: of a service account without the right
// to, of one with the right, of another user, and of an unknown user. Only those of service accounts
// are asked about again.
func rightAskedAgain(e *addresses) {
	e.Applied(foreignPool())
	denied, granted, user := claim("denied").Pool("hosts").Obj(), claim("granted").Pool("hosts").Obj(), claim("user").Pool("hosts").Obj()
	e.RequestedBy(denied, story.Deployer)
	e.RequestedBy(granted, story.Entitled)
	e.RequestedBy(user, "admin")
	e.Created(denied, granted, claim("unknown").Pool("hosts").Obj(), user)
	if again := e.Reconciled("denied").NotReady(v1alpha1.ReasonPoolNotFound).RequeueAfter(); again <= 0 {
		e.t.Errorf("it is asked for again after %s", again)
	}
	e.Reconciled("unknown").NotReady(v1alpha1.ReasonPoolNotFound).After(0)
	e.Reconciled("user").NotReady(v1alpha1.ReasonPoolNotFound).After(0)
	e.Reconciled("granted").Served("10.0.0.2")
	pool, _ := e.Catalog.Pool(ipam.PoolNamed("hosts"))
	if got, want := e.stored("granted").Annotations[v1alpha1.AnnotationUseGranted], "hosts/"+pool.Spec.UID; got != want {
		e.t.Errorf("the right is noted as %q, want %q", got, want)
	}
}

// formerRequester has a claim adopted whose creator a former version has encrypted.
func formerRequester(e *addresses) {
	e.Applied(hostPool().Obj())
	obj := claim("a").Pool("hosts").Obj()
	obj.Annotations, obj.Finalizers = map[string]string{v1alpha1.AnnotationRequester: "v1.x.y"}, nil
	e.Created(obj)
	e.Reconciled("a").Served("10.0.0.2")
	if _, has := e.stored("a").Annotations[v1alpha1.AnnotationRequester]; has {
		e.t.Error("the encrypted creator is still there")
	}
}

// grantedFails makes each call fail for a claim of a user who has the right to name its pool.
func grantedFails(e *addresses) {
	e.Applied(foreignPool())
	e.Failing(func(n int) story.Interruption {
		obj := claim(fmt.Sprintf("a%02d", n)).Pool("hosts").Obj()
		e.RequestedBy(obj, story.Entitled)
		e.Applied(obj)
		return e.interruption(obj.Name, nil)
	})
}

// foreignPool returns a pool of another project, which claims can name with the right.
func foreignPool() *v1alpha1.IPPool {
	return hostPool().With(func(s *v1alpha1.IPPoolSpec) { s.Project = "theirs" }).Obj()
}

// judgementFails makes each call fail that judges whether a record is held, and each call that
// every replica makes to find the waiting claims.
func judgementFails(e *addresses) {
	e.Applied(hostPool().Obj())
	e.Failing(func(n int) story.Interruption {
		obj := e.numbered(n)
		e.Reconciled(obj.Name).Ready()
		record := e.record(obj.Name)
		record.Terminating = n%2 == 0 // then its claim is read too
		waiting := &Replica{Ledger: e.controller.Ledger, Catalog: e.controller.Catalog, Queue: e.controller.Queue, Client: e.K8s, Within: e.controller.Within, WatchFilter: e.controller.WatchFilter}
		by := reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
			held, err := holds(ctx, e.K8s, record)
			if err != nil {
				return reconcile.Result{}, err
			}
			if !held {
				e.t.Error("the record is not held")
			}
			return waiting.Reconcile(ctx, request)
		})
		i := e.interruption(obj.Name, nil)
		i.By = by
		return i
	})
}

// unseenWhileReleased hides from the cache the IPAddress of a claim that is released.
func unseenWhileReleased(e *addresses) {
	e.Applied(hostPool().Obj(), claim("a").Pool("hosts").Obj())
	e.Reconciled("a").Served("10.0.0.2")
	e.Deleted(claim("a").Obj())
	e.controller.Client = interceptor.NewClient(e.K8s, interceptor.Funcs{Get: withoutAddresses})
	e.Reconciled("a").Wrote("delete IPAddress")
	e.controller.Client = e.K8s
	e.Reconciled("a").Wrote("patch IPAddress", "patch IPAddressClaim")
	e.Gone(claim("a").Obj())
}

// orphanedAddresses leaves IPAddresses whose claims went without release. An IPAddress that a user makes
// for a later claim stays, and so does one whose block is another's.
func orphanedAddresses(e *addresses) {
	e.Applied(hostPool().Obj())
	for _, name := range []string{"a", "b"} {
		e.Applied(claim(name).Pool("hosts").Obj())
		e.Reconciled(name).Ready()
		e.controller.expectations.observeDeletedClaim(e.stored(name))
		e.Forced(claim(name).Obj())
	}
	story.Edited(e.World, address("b", ""), func(a *ipamv1.IPAddress) { a.Finalizers = []string{"example.com/other"} }) // a user's, for a later claim
	e.Reconciled("a").Wrote("delete IPAddress")
	e.Reconciled("b").Wrote()
	rival := address("c", "10.0.0.3")
	rival.Finalizers = []string{v1alpha1.FinalizerProtect}
	e.Created(rival)
	e.controller.expectations.deletedClaims.Store(ipam.Name{Namespace: story.Team, Name: "c"}, "former")
	e.Retried("c").Wrote()
	if records := e.RecordsOf(convert.HolderOfAddressClaim(ipam.Name{Namespace: story.Team, Name: "c"})); len(records) > 0 {
		e.t.Errorf("%v is recorded for an address that another has", records)
	}
}
