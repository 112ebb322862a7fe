package ipam

import (
	"net/netip"

	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// Usage is how much is held: blocks, and the addresses in them.
type Usage struct{ Blocks, Addresses space.Count }

// UsageOf is the usage of one block.
func UsageOf(block netip.Prefix) Usage {
	return Usage{Blocks: space.CountOf64(1), Addresses: space.CountOf(block)}
}

// Add is the usage with that of another one in addition.
func (u Usage) Add(other Usage) Usage {
	return Usage{Blocks: u.Blocks.Add(other.Blocks), Addresses: u.Addresses.Add(other.Addresses)}
}

// Sub is the usage without that of another one.
func (u Usage) Sub(other Usage) Usage {
	return Usage{Blocks: u.Blocks.Sub(other.Blocks), Addresses: u.Addresses.Sub(other.Addresses)}
}

// Maximum is the most that there may be of something. The zero value is no maximum.
type Maximum struct {
	Set   bool
	Count space.Count
}

func (m Maximum) allows(n space.Count) bool { return !m.Set || n.Cmp(m.Count) <= 0 }

// Limit is what one project may hold. The zero value is no limit.
type Limit struct{ Blocks, Addresses Maximum }

// IsSet reports whether there is any limit.
func (l Limit) IsSet() bool { return l.Blocks.Set || l.Addresses.Set }

// Account is the project and the class for which a block counts, and what the class of the block allows it.
type Account struct {
	Project, Class string
	ClassLimit     Limit
}

// Check returns a *LimitError where a project that holds so much of something would
// exceed the limit with more of it. A request of no project has no limit.
func (l Limit) Check(of, project string, held, more Usage) error {
	if project == "" {
		return nil
	}
	total := held.Add(more)
	switch {
	case !l.Blocks.allows(total.Blocks):
		return &LimitError{Of: of, Project: project, Unit: "block", Most: l.Blocks.Count, Held: held.Blocks}
	case !l.Addresses.allows(total.Addresses):
		return &LimitError{Of: of, Project: project, Unit: "address", Most: l.Addresses.Count, Held: held.Addresses}
	}
	return nil
}
