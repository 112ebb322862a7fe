package ledger

import (
	"errors"
	"net/netip"
	"testing"
)

// turnFunc implements a Turn by a function.
type turnFunc func(Room, netip.Prefix) (bool, netip.Prefix)

func (f turnFunc) MayTake(room Room, block netip.Prefix) (bool, netip.Prefix) { return f(room, block) }

// TestHoldSkipsBlocksWantedByOthers expects the hold of the first free block that no other waiter
// wants.
func TestHoldSkipsBlocksWantedByOthers(t *testing.T) {
	for name, c := range map[string]struct {
		wanted []string
		block  string // the block of the request
		got    string // none: out of turn
	}{
		"nothing":                          {nil, "", "10.0.0.0/28"},
		"the first":                        {[]string{"10.0.0.0/28"}, "", "10.0.0.16/28"},
		"a part of the first, and more":    {[]string{"10.0.0.4/30", "10.0.0.16/28"}, "", "10.0.0.48/28"}, // 32 is withheld
		"all":                              {[]string{"10.0.0.0/24"}, "", ""},
		"the very block that is asked for": {[]string{"10.0.0.0/28"}, "10.0.0.0/28", ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(1)
			must(t, feed{l}.Replace(recordList(), "1"))
			newcomer := ask("a")
			if c.block != "" {
				newcomer.Block = netip.MustParsePrefix(c.block)
			}
			newcomer.Turn = turnFunc(func(_ Room, block netip.Prefix) (bool, netip.Prefix) {
				for _, w := range c.wanted {
					if w := netip.MustParsePrefix(w); w.Overlaps(block) {
						return false, w
					}
				}
				return true, netip.Prefix{}
			})
			if c.got == "" {
				if _, err := l.Hold(newcomer); !errors.Is(err, ErrOutOfTurn) {
					t.Errorf("got %v, want ErrOutOfTurn", err)
				}
				return
			}
			if h := mustHold(t, l, newcomer); h.Block.String() != c.got {
				t.Errorf("got %s, want %s", h.Block, c.got)
			}
		})
	}
}
