package story

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// Interruption holds a few passes over one object, in which a second actor comes in once.
type Interruption struct {
	// By reconciles Object.
	By     reconcile.Reconciler
	Object client.Object
	// Act is the action of the second actor. It uses the verbs of the story, so that the pass
	// that it interrupts decides with the result of the action.
	Act func()
	// Check expects the end state, besides the expectations of Consistent and Keeps.
	Check func()
}

const (
	// passesInterrupted is the number of passes that are made while the actor may come in, and
	// passesAfter the number that follow: they finish the work that a pass leaves to the next.
	passesInterrupted = 2
	passesAfter       = 4
	// passesEvery is the time between two of them. It is longer than the controllers wait
	// for their caches, and 4 of them are shorter than the grace of a record.
	passesEvery = 10 * time.Second
)

// Interrupted runs a story once for each moment at which another actor can come in while
// Reconcile works: just before and just after each of its calls of the API, and after the last.
// The data that has been read from the view is old then, or is not read yet. Each time begin
// sets up other objects, whose names contain n.
func (w *World) Interrupted(begin func(n int) Interruption) {
	w.t.Helper()
	for n, acted := 0, true; acted; n++ {
		i := begin(n)
		w.kept = nil
		w.moments.arm(n, func(what string) error {
			w.t.Logf("n=%d: the other actor comes in %s", n, what)
			i.Act()
			return nil
		})
		for range passesInterrupted {
			_ = w.passed(i)
		}
		if acted = !w.moments.disarm(); !acted {
			w.t.Logf("n=%d: the other actor comes in when all calls are made", n)
			i.Act()
		}
		w.settled(i)
	}
}

// settled makes the passes that are left, and expects that everything is as it should be.
func (w *World) settled(i Interruption) {
	w.t.Helper()
	for range passesAfter {
		w.Passes(passesEvery)
		_ = w.passed(i)
	}
	w.Consistent()
	w.expectKept()
	if i.Check != nil {
		i.Check()
	}
}

// passed makes a pass, which may fail: a controller tries again if it cannot do something at
// the moment.
func (w *World) passed(i Interruption) error {
	w.t.Helper()
	_, err := w.pass(i.By, i.Object.DeepCopyObject().(client.Object))
	if err != nil {
		w.t.Logf("the pass ended with: %v", err)
	}
	return err
}

// moments counts the moments at which another actor may come in, and lets it act at one. If the
// actor returns an error, so does the call.
type moments struct {
	mu   sync.Mutex
	left int
	act  func(what string) error
}

func (m *moments) arm(after int, act func(string) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left, m.act = after, act
}

// disarm reports whether the moment has not come.
func (m *moments) disarm() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	waits := m.act != nil
	m.act = nil
	return waits
}

// around makes a call, with a moment before and one after it. The calls of the actor itself
// have none.
func (m *moments) around(what string, do func() error) error {
	if err := m.pass("before " + what); err != nil {
		return err
	}
	err := do()
	if failed := m.pass("after " + what); failed != nil {
		return failed
	}
	return err
}

func (m *moments) pass(what string) error {
	m.mu.Lock()
	act := m.act
	if m.left--; m.left >= 0 {
		act = nil
	}
	if act != nil {
		m.act = nil
	}
	m.mu.Unlock()
	if act == nil {
		return nil
	}
	return act(what)
}

// OthersFinalizer is the finalizer of another controller.
const OthersFinalizer = "example.com/other"

// Replaced deletes an object, whatever finalizers it has, and creates another one of its name,
// which has the finalizer of another controller and is kept. The object is then updated to the
// stored state.
func (w *World) Replaced(obj client.Object) {
	w.t.Helper()
	w.Forced(obj.DeepCopyObject().(client.Object))
	obj.SetUID("")
	obj.SetResourceVersion("")
	obj.SetDeletionTimestamp(nil)
	obj.SetFinalizers(append(obj.GetFinalizers(), OthersFinalizer))
	w.Created(obj)
	w.Keeps(obj)
}

// Finalized puts the finalizer of another controller on an object, if it is stored, and keeps
// it.
func Finalized[T client.Object](w *World, obj T) {
	w.t.Helper()
	if w.isStored(obj) {
		Edited(w, obj, func(obj T) { obj.SetFinalizers(append(obj.GetFinalizers(), OthersFinalizer)) })
		w.Keeps(obj)
	}
}

func hasOthers(obj client.Object) bool {
	return slices.Contains(obj.GetFinalizers(), OthersFinalizer)
}

// Keeps makes the end of an interruption expect that the object is still stored, no more
// deleted than now, and with the finalizer of another controller if it has that now.
func (w *World) Keeps(obj client.Object) {
	w.t.Helper()
	w.kept = append(w.kept, Stored(w, obj.DeepCopyObject().(client.Object)))
}

func (w *World) expectKept() {
	w.t.Helper()
	for _, before := range w.kept {
		now := before.DeepCopyObject().(client.Object)
		if what := fmt.Sprintf("%s %s", kindOf(before), client.ObjectKeyFromObject(before)); !w.isStored(now) || now.GetUID() != before.GetUID() {
			w.t.Fatalf("%s is gone", what)
		} else if now.GetDeletionTimestamp() != nil && before.GetDeletionTimestamp() == nil {
			w.t.Fatalf("%s is deleted", what)
		} else if hasOthers(before) && !hasOthers(now) {
			w.t.Fatalf("%s has the finalizers %q, want that another controller's stays", what, now.GetFinalizers())
		}
	}
}

// Consistent expects that no two records of a pool overlap, and that each object which is Ready
// has the record of its block: under its name, and not of an earlier object of its name.
func (w *World) Consistent() {
	w.t.Helper()
	records := w.storedRecords()
	for i, a := range records {
		for _, b := range records[:i] {
			isOnePool := a.Holder.IsPool() && a.Holder == b.Holder // its ranges were edited
			if a.Pool == b.Pool && overlap(a.Blocks(), b.Blocks()) && !isOnePool {
				w.t.Fatalf("blocks of %v of %s are held twice: by %s and by %s", a.Blocks(), a.Pool, a.Holder, b.Holder)
			}
		}
	}
	for _, kind := range w.plane.kinds {
		for _, obj := range w.listed(kind) {
			w.expectRecord(obj, records)
		}
	}
}

func overlap(blocks, others []netip.Prefix) bool {
	return slices.ContainsFunc(blocks, func(block netip.Prefix) bool { return slices.ContainsFunc(others, block.Overlaps) })
}

func (w *World) storedRecords() []ipam.Record {
	w.t.Helper()
	list := &v1alpha1.IPAllocationList{}
	suite.Must(w.t, w.plane.admin.List(w.t.Context(), list))
	var records []ipam.Record
	for i := range list.Items {
		record, unreadable := convert.Record(&list.Items[i])
		if unreadable != nil {
			w.t.Fatal(unreadable)
		}
		records = append(records, record)
	}
	return records
}

// listed returns all objects of a kind.
func (w *World) listed(kind client.Object) []client.Object {
	w.t.Helper()
	gvk, err := w.plane.admin.GroupVersionKindFor(kind)
	suite.Must(w.t, err)
	gvk.Kind += "List"
	list, err := w.plane.admin.Scheme().New(gvk)
	suite.Must(w.t, err)
	suite.Must(w.t, w.plane.admin.List(w.t.Context(), list.(client.ObjectList)))
	items, err := meta.ExtractList(list)
	suite.Must(w.t, err)
	objects := make([]client.Object, len(items))
	for i, item := range items {
		objects[i] = item.(client.Object)
	}
	return objects
}

// expectRecord expects that an object that is Ready has its record.
func (w *World) expectRecord(obj client.Object, records []ipam.Record) {
	w.t.Helper()
	holder, blocks := w.heldBy(obj)
	if blocks == "" || !meta.IsStatusConditionTrue(conditionsOf(obj), v1alpha1.ConditionReady) {
		return
	}
	for _, r := range records {
		if r.Holder == holder && fmt.Sprint(r.Blocks()) == blocks && r.MayBeOf(string(obj.GetUID())) {
			return
		}
	}
	w.t.Fatalf("%s is Ready with %s, of which there is no record for its UID %s", holder, blocks, obj.GetUID())
}

// heldBy returns the blocks of an object, and the holder that the object is; "" if the object has
// none.
func (w *World) heldBy(obj client.Object) (ipam.Holder, string) {
	w.t.Helper()
	name := ipam.Name{Namespace: obj.GetNamespace(), Name: obj.GetName()}
	switch obj := obj.(type) {
	case *v1alpha1.IPClaim:
		if obj.Spec.CIDR != "" {
			return convert.HolderOfClaim(name), "[" + obj.Spec.CIDR + "]"
		}
	case v1alpha1.Pool:
		key, blocks := convert.KeyOf(obj), convert.BlocksOf(obj)
		if blocks != nil && !key.Kind.IsInCluster() { // which can have several records: the story has to check them
			return convert.HolderOfPool(key), fmt.Sprint(blocks)
		}
	case *ipamv1.IPAddressClaim:
		address := &ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: obj.Namespace, Name: obj.Status.AddressRef.Name}}
		if address.Name != "" && w.isStored(address) {
			return convert.HolderOfAddressClaim(name), "[" + address.Spec.Address + "/32]"
		}
	}
	return ipam.Holder{}, ""
}
