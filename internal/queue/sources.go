package queue

import "github.com/cadastre-dev/cadastre/internal/ipam"

// FedBy adds a source on which decisions rest; synced reports whether its first list
// is complete. It must be called before the cache is started: when the list of a source
// that is added later is complete, what the waiters want is not resolved again.
func (q *Queue) FedBy(synced func() bool) {
	q.sourcesLock.Lock()
	defer q.sourcesLock.Unlock()
	q.sources = append(q.sources, synced)
}

// Synced is ipam.ErrNotSynced until all that decisions rest on has been seen
// once: records, pools, classes and the claims that wait. Nobody is served before.
func (q *Queue) Synced() error {
	q.sourcesLock.RLock()
	defer q.sourcesLock.RUnlock()
	for _, synced := range q.sources {
		if !synced() {
			return ipam.ErrNotSynced
		}
	}
	if !q.isResolved.Load() {
		q.resolveAll()
	}
	return nil
}
