package inventory

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// lostShown is how many objects that are gone are remembered, so that a live read
// which is late does not bring them back.
const lostShown = 1024

// liveReads is what requests read past the caches, which may be behind: in turn, and
// never older than what the watch has shown.
type liveReads struct {
	clock clock.PassiveClock
	lists singleflight.Group

	listed struct {
		sync.Mutex
		last time.Time
	}

	// mu is held while an object is compared and entered.
	mu sync.Mutex
	// versions are the newest that were entered of each object, and of the last that
	// are gone the ones in which they went.
	versions map[string]string
	lost     []string
}

func newLiveReads(c clock.PassiveClock) *liveReads {
	return &liveReads{clock: c, versions: map[string]string{}}
}

// shown enters an object as the watch shows it.
func (l *liveReads) shown(obj client.Object, enter func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.versions[keyOf(obj)] = obj.GetResourceVersion()
	enter()
}

// gone notes that the watch has shown an object's deletion.
func (l *liveReads) gone(obj client.Object, drop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := keyOf(obj)
	l.versions[key] = obj.GetResourceVersion()
	if l.lost = append(l.lost, key); len(l.lost) > lostShown {
		l.forget(l.lost[0])
		l.lost = l.lost[1:]
	}
	drop()
}

// forget forgets an object that is gone. One that was made again meanwhile is compared
// anew from its next event on.
func (l *liveReads) forget(key string) { delete(l.versions, key) }

// read enters an object that was read live, where it is newer than what is known.
func (l *liveReads) read(obj client.Object, enter func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key, version := keyOf(obj), obj.GetResourceVersion()
	if known, ok := l.versions[key]; ok && !newer(version, known) {
		return
	}
	l.versions[key] = version
	enter()
}

// newer reports whether a version of an object is newer than another; not where that
// is not known.
func newer(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order > 0
}

func keyOf(obj client.Object) string {
	return fmt.Sprintf("%T %s/%s", obj, obj.GetNamespace(), obj.GetName())
}
