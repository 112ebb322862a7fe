// Package changes lets goroutines wait for a change of what they share.
package changes

import (
	"context"
	"sync"
)

// Mutex guards a state whose changes others wait for. The zero value can be used.
type Mutex struct {
	sync.Mutex
	// next is closed at the next change; nil if nobody waits for it.
	next chan struct{}
}

// Changed wakes those that wait. The caller has locked m.
func (m *Mutex) Changed() {
	if m.next != nil {
		close(m.next)
		m.next = nil
	}
}

// Await locks m while it calls holds, until that returns true. It reports false if ctx is done
// before.
func (m *Mutex) Await(ctx context.Context, holds func() bool) bool {
	m.Lock()
	defer m.Unlock()
	for !holds() {
		if m.next == nil {
			m.next = make(chan struct{})
		}
		next := m.next
		m.Unlock()
		select {
		case <-next:
		case <-ctx.Done():
		}
		m.Lock()
		if ctx.Err() != nil {
			return false
		}
	}
	return true
}
