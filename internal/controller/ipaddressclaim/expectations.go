package ipaddressclaim

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

const (
	// storedWithin is the time within which an IPAddress whose create call was not answered can
	// still be stored, and shown by the cache: the API server ends requests after a minute.
	storedWithin = 2 * time.Minute
	// showsWithin is the time within which the caches and the view show a change. After that the
	// object is reconciled again, and its finalizer is removed again: a restore of etcd brings back
	// the same version.
	showsWithin = 5 * time.Second
)

// expectations holds the changes that this process has made or seen and that its caches do not show
// yet, by the name of the claim, which is its IPAddress's too. A pass decides with both. The zero
// value expects nothing; all methods can be called from any goroutine.
type expectations struct {
	// created has a creation for each IPAddress that this process creates, until the cache
	// shows the IPAddress.
	created sync.Map
	// claims and addresses have the last removal of a finalizer from a claim, and from an
	// IPAddress, until it is gone.
	claims, addresses removals
	// deleted has the UID of the last claim of a name whose deletion was seen, while its IPAddress
	// may still exist.
	deleted sync.Map
	// pools names the IPAddresses whose pool is missing: any change of a pool or a class can bring
	// that pool.
	pools sync.Map
}

// creation holds the last attempt to create an IPAddress.
type creation struct {
	since time.Time
	// uid is the UID of the IPAddress, if the API server has answered.
	uid types.UID
	// unsure is true if the answer leaves open whether the IPAddress was stored, or whether it is
	// the one of an earlier attempt.
	unsure bool
}

// create notes that an IPAddress is about to be created. The caller notes the result with the
// returned attempt: that the IPAddress was stored, that it was not, or that this is not known.
func (e *expectations) create(name ipam.Name, now time.Time) attempt {
	a := attempt{expected: e, name: name, creation: creation{since: now}}
	e.created.Store(name, a.creation)
	return a
}

// attempt represents an attempt to create an IPAddress.
type attempt struct {
	expected *expectations
	name     ipam.Name
	creation creation
}

func (a attempt) stored(uid types.UID) {
	stored := a.creation
	stored.uid = uid
	a.expected.created.CompareAndSwap(a.name, a.creation, stored) // unless it has been shown
}

func (a attempt) refused() { a.expected.created.Delete(a.name) }

func (a attempt) unanswered() {
	unsure := a.creation
	unsure.unsure = true
	a.expected.created.Store(a.name, unsure)
}

// coming returns the time within which an IPAddress that the cache does not show can still appear;
// 0 if none is expected.
func (e *expectations) coming(name ipam.Name, now time.Time) time.Duration {
	last, ok := e.created.Load(name)
	if !ok {
		return 0
	}
	left := storedWithin - now.Sub(last.(creation).since)
	if left <= 0 {
		e.created.Delete(name)
	}
	return max(left, 0)
}

// shown notes that the cache shows an IPAddress, and returns how this process created it; false if
// it did not. An event can be of an earlier IPAddress of the name: the cache had lost that one
// already when this process looked and created the next.
func (e *expectations) shown(address client.Object) (creation, bool) {
	name := nameOf(address)
	for {
		last, ok := e.created.Load(name)
		if !ok {
			return creation{}, false
		}
		created := last.(creation)
		if created.uid != "" && created.uid != address.GetUID() {
			return creation{}, false
		}
		if e.created.CompareAndDelete(name, created) {
			return created, true
		}
	}
}

// addressGone notes that an IPAddress is gone. Another IPAddress of its name that is about to
// appear is still expected.
func (e *expectations) addressGone(address client.Object) {
	name := nameOf(address)
	if last, ok := e.created.Load(name); ok && last.(creation).uid == address.GetUID() {
		e.created.Delete(name)
	}
	e.addresses.forget(name)
	e.pools.Delete(name)
}

// claimGone notes that the deletion of a claim was seen.
func (e *expectations) claimGone(claim client.Object) {
	e.deleted.Store(nameOf(claim), string(claim.GetUID()))
	e.claims.forget(nameOf(claim))
}

// deletedClaim returns the UID of the last claim of the name whose deletion was seen.
func (e *expectations) deletedClaim(name ipam.Name) (uid string, seen bool) {
	last, seen := e.deleted.Load(name)
	if !seen {
		return "", false
	}
	return last.(string), true
}

// forgetDeletedClaim forgets that deletion, unless another one was seen since.
func (e *expectations) forgetDeletedClaim(name ipam.Name, uid string) {
	e.deleted.CompareAndDelete(name, uid)
}

// removal holds the version of an object from which the finalizer was removed, and the time.
type removal struct {
	version string
	at      time.Time
}

// isOf reports whether the finalizer of exactly this version was removed a moment ago.
func (r removal) isOf(obj client.Object, now time.Time) bool {
	return r.version == obj.GetResourceVersion() && now.Sub(r.at) < showsWithin
}

// removals holds the last removals of the finalizer of one kind, by the name of the object.
type removals struct{ byName sync.Map }

// last returns the last removal from the object of the name; zero if there is none.
func (r *removals) last(name ipam.Name) removal {
	last, _ := r.byName.Load(name)
	noted, _ := last.(removal)
	return noted
}

// remove calls do, which removes the finalizer, and notes the removal from this version unless do
// fails.
func (r *removals) remove(obj client.Object, now time.Time, do func() error) error {
	r.byName.Store(nameOf(obj), removal{version: obj.GetResourceVersion(), at: now})
	err := do()
	if err != nil {
		r.forget(nameOf(obj))
	}
	return err
}

// forget forgets the removal from an object that is gone.
func (r *removals) forget(name ipam.Name) { r.byName.Delete(name) }

// poolMissing notes whether the pool of an IPAddress is missing. The caller calls it before it
// looks for the pool, so that no change is missed, and again once the pool is found.
func (e *expectations) poolMissing(name ipam.Name, missing bool) {
	if missing {
		e.pools.Store(name, nil)
	} else {
		e.pools.Delete(name)
	}
}

// withoutPool calls f for each IPAddress whose pool is missing.
func (e *expectations) withoutPool(f func(ipam.Name)) {
	e.pools.Range(func(name, _ any) bool {
		f(name.(ipam.Name))
		return true
	})
}
