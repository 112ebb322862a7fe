package ipaddressclaim

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

const (
	// storeTimeout is the time within which an IPAddress whose create call was not answered can
	// still be stored, and shown by the cache: the API server ends requests after a minute.
	storeTimeout = 2 * time.Minute
	// cacheTimeout is the time within which the caches and the view show a change. After that the
	// object is reconciled again, and its finalizer is removed again: a restore of etcd brings back
	// the same version.
	cacheTimeout = 5 * time.Second
)

// expectations holds the changes that this process has made or seen and that its caches do not show
// yet, by the name of the claim, which is its IPAddress's too. A pass decides with both. The zero
// value expects nothing; all methods can be called from any goroutine.
type expectations struct {
	// creations has a creation for each IPAddress that this process creates, until the cache
	// shows the IPAddress.
	creations sync.Map
	// claims and addresses have the last removal of a finalizer from a claim, and from an
	// IPAddress, until it is gone.
	claims, addresses removals
	// deletedClaims has the UID of the last claim of a name whose deletion was seen, while its IPAddress
	// may still exist.
	deletedClaims sync.Map
	// claimsWithoutPool names the IPAddresses whose pool is missing: any change of a pool or a class can bring
	// that pool. A name is stored before the pool is looked for, so that no change is missed.
	claimsWithoutPool sync.Map
	// unretained has the namespace and sticky key of each claim that waits for a record of that key to be
	// retained, until its next pass.
	unretained sync.Map
}

// creation holds the last attempt to create an IPAddress.
type creation struct {
	since time.Time
	// uid is the UID of the IPAddress, if the API server has answered.
	uid types.UID
	// isUnsure is true if the answer leaves open whether the IPAddress was stored, or whether it is
	// the one of an earlier attempt.
	isUnsure bool
}

// settleAddress notes the result of an attempt to create an IPAddress: that it was stored, that it
// was not, or that this is not known.
func (e *expectations) settleAddress(name ipam.Name, attempt creation, uid types.UID, err error) {
	settled := attempt
	switch {
	case err == nil:
		settled.uid = uid
		e.creations.CompareAndSwap(name, attempt, settled) // unless it has been shown
	case queue.IsRefused(err):
		e.creations.Delete(name)
	default:
		settled.isUnsure = true
		e.creations.Store(name, settled)
	}
}

// addressDelay returns the time within which an IPAddress that the cache does not show can still appear;
// 0 if none is expected.
func (e *expectations) addressDelay(name ipam.Name, now time.Time) time.Duration {
	last, ok := e.creations.Load(name)
	if !ok {
		return 0
	}
	remaining := storeTimeout - now.Sub(last.(creation).since)
	if remaining <= 0 {
		e.creations.Delete(name)
	}
	return max(remaining, 0)
}

// observeAddress notes that the cache shows an IPAddress, and returns how this process created it; false if
// it did not. An event can be of an earlier IPAddress of the name: the cache had lost that one
// already when this process looked and created the next.
func (e *expectations) observeAddress(address client.Object) (creation, bool) {
	name := nameOf(address)
	for {
		last, ok := e.creations.Load(name)
		if !ok {
			return creation{}, false
		}
		entry := last.(creation)
		if entry.uid != "" && entry.uid != address.GetUID() {
			return creation{}, false
		}
		if e.creations.CompareAndDelete(name, entry) {
			return entry, true
		}
	}
}

// observeDeletedAddress notes that an IPAddress is gone. Another IPAddress of its name that is about to
// appear is still expected.
func (e *expectations) observeDeletedAddress(address client.Object) {
	name := nameOf(address)
	if last, ok := e.creations.Load(name); ok && last.(creation).uid == address.GetUID() {
		e.creations.Delete(name)
	}
	e.addresses.forget(name)
	e.claimsWithoutPool.Delete(name)
}

// observeDeletedClaim notes that the deletion of a claim was seen.
func (e *expectations) observeDeletedClaim(claim client.Object) {
	e.deletedClaims.Store(nameOf(claim), string(claim.GetUID()))
	e.claims.forget(nameOf(claim))
}

// deletedClaim returns the UID of the last claim of the name whose deletion was seen.
func (e *expectations) deletedClaim(name ipam.Name) (uid string, ok bool) {
	last, ok := e.deletedClaims.Load(name)
	if !ok {
		return "", false
	}
	return last.(string), true
}

// removal holds the version of an object from which the finalizer was removed, and the time.
type removal struct {
	version string
	at      time.Time
}

// isOf reports whether the finalizer of exactly this version was removed a moment ago.
func (r removal) isOf(obj client.Object, now time.Time) bool {
	return r.version == obj.GetResourceVersion() && now.Sub(r.at) < cacheTimeout
}

// removals holds the last removals of the finalizer of one kind, by the name of the object.
type removals struct{ byName sync.Map }

// last returns the last removal from the object of the name; zero if there is none.
func (r *removals) last(name ipam.Name) removal {
	last, _ := r.byName.Load(name)
	entry, _ := last.(removal)
	return entry
}

// forget forgets the removal from an object that is gone.
func (r *removals) forget(name ipam.Name) { r.byName.Delete(name) }
