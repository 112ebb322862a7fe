package ledger

import (
	"slices"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// index enters a record under its holder and its sticky key.
func (l *Ledger) index(e *entry) {
	l.byHolder[e.Holder] = append(l.byHolder[e.Holder], e)
	if e.Sticky != "" {
		l.bySticky[e.stickyKey()] = append(l.bySticky[e.stickyKey()], e)
	}
}

func (l *Ledger) unindex(e *entry) {
	strikeOut(l.byHolder, e.Holder, e)
	strikeOut(l.bySticky, e.stickyKey(), e)
}

func strikeOut[K comparable](index map[K][]*entry, key K, e *entry) {
	rest := slices.DeleteFunc(index[key], func(other *entry) bool { return other == e })
	if len(rest) == 0 {
		delete(index, key)
		return
	}
	index[key] = rest
}

// stickyKey is the namespace's key by which the block is given again.
func (e *entry) stickyKey() ipam.Name {
	return ipam.Name{Namespace: e.Name.Namespace, Name: e.Sticky}
}

// HeldBy is every record of a holder.
func (l *Ledger) HeldBy(holder ipam.Holder) []ipam.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return records(l.byHolder[holder])
}

// Sticky is every record of a namespace's sticky key.
func (l *Ledger) Sticky(key ipam.Name) []ipam.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return records(l.bySticky[key])
}

// OfKind is every record of holders of a kind. It costs O(records).
func (l *Ledger) OfKind(kind string) []ipam.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []ipam.Record
	for _, e := range l.byUID {
		if e.Holder.Kind == kind {
			all = append(all, e.Record)
		}
	}
	return all
}

func records(entries []*entry) []ipam.Record {
	var all []ipam.Record
	for _, e := range entries {
		all = append(all, e.Record)
	}
	return all
}
