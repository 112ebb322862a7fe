package ipaddressclaim

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

const (
	// storedWithin is for how long an IPAddress may yet be stored, and shown by the cache,
	// whose create call was not answered: the API server ends requests after a minute.
	storedWithin = 2 * time.Minute
	// showsWithin is for how long the caches and the view may have yet to show what was
	// done. After that it is reconciled again, and its finalizer is removed again: a restore
	// of etcd brings back the very version.
	showsWithin = 5 * time.Second
)

// expectations are what this process has done or seen and its caches do not show yet, by
// the name of the claim, which is its IPAddress's too. A pass decides with both. The zero
// value expects nothing; all methods may be called from any goroutine.
type expectations struct {
	// created has a creation for each IPAddress that this process creates, until the cache
	// shows the IPAddress.
	created sync.Map
	// claims and addresses have the last removal of a finalizer from a claim, and from an
	// IPAddress, until it is gone.
	claims, addresses removals
	// deleted is the UID of the last claim of a name whose deletion was seen, while its
	// IPAddress may still be there.
	deleted sync.Map
	// pools names the IPAddresses whose pool is missing: any change of a pool or a class may
	// be that it is there.
	pools sync.Map
}

// creation is the last attempt to create an IPAddress.
type creation struct {
	since time.Time
	// uid is that of the IPAddress, where the API server has answered.
	uid types.UID
	// unsure says that the answer leaves open whether the IPAddress was stored, or is the
	// one of an earlier attempt.
	unsure bool
}

// create notes that an IPAddress is about to be created. What comes of it is noted with
// what it returns: that the IPAddress was stored, that it was not, or that this is not
// known.
func (e *expectations) create(name ipam.Name, now time.Time) attempt {
	a := attempt{expected: e, name: name, creation: creation{since: now}}
	e.created.Store(name, a.creation)
	return a
}

// attempt is one to create an IPAddress.
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

// coming is for how long an IPAddress that the cache does not show may yet appear; 0 where
// none is expected.
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

// shown notes that the cache shows an IPAddress, and returns how this process created it;
// false where it did not. An event may be of an earlier one of the name: the cache had lost
// that already when this process looked and created the next.
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

// addressGone notes that an IPAddress is gone. One of its name that is coming is still
// expected.
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

// deletedClaim is the UID of the last claim of the name whose deletion was seen.
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

// removal is the version of an object from which the finalizer was removed, and when.
type removal struct {
	version string
	at      time.Time
}

// isOf reports whether the finalizer of this very version was removed a moment ago.
func (r removal) isOf(obj client.Object, now time.Time) bool {
	return r.version == obj.GetResourceVersion() && now.Sub(r.at) < showsWithin
}

// removals are the last ones of the finalizer of one kind, by the name of the object.
type removals struct{ byName sync.Map }

// last is the last removal from the object of the name; zero where there is none.
func (r *removals) last(name ipam.Name) removal {
	last, _ := r.byName.Load(name)
	noted, _ := last.(removal)
	return noted
}

// remove removes the finalizer by do, and notes that of this version unless it fails.
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

// poolMissing notes whether the pool of an IPAddress is missing. To be called before the
// pool is looked for, so that no change is missed, and again once it is found.
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
