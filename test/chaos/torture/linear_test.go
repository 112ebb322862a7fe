package torture

import (
	"net/netip"
	"testing"
	"time"

	"github.com/cadastre-dev/cadastre/test/chaos/torture/witness"
)

// second returns the time so many seconds after the beginning.
func second(n int) time.Time { return time.Unix(1_000_000+int64(n), 0) }

// life represents the holding of a block: when it was requested and allocated, and when its end was
// requested and seen; no end is 0.
type life struct {
	who, block                        string
	asked, allocated, ending, release int
}

func check(lives ...life) Linearizability {
	asked, releasing := map[string]time.Time{}, map[string]time.Time{}
	var all []witness.Life
	for _, l := range lives {
		one := witness.Life{UID: l.who, Attempt: l.who, Place: "pool", Block: netip.MustParsePrefix(l.block), Allocated: second(l.allocated), Changed: second(l.allocated)}
		asked[l.who] = second(l.asked)
		if l.release > 0 {
			one.Released, releasing[l.who] = second(l.release), second(l.ending)
		}
		all = append(all, one)
	}
	return checkLinearizable(asked, releasing, all)
}

func TestLinearizability(t *testing.T) {
	for _, test := range []struct {
		what  string
		bad   bool
		lives []life
	}{
		{"one after the other", false, []life{{"a", "10.0.0.0/24", 1, 2, 3, 4}, {"b", "10.0.0.0/25", 5, 6, 0, 0}}},
		{"asked for while the other exists, allocated when it is gone", false, []life{{"a", "10.0.0.0/24", 1, 2, 4, 6}, {"b", "10.0.0.0/25", 3, 7, 0, 0}}},
		{"allocated before the end of the other was seen, but after it was asked for", false, []life{{"a", "10.0.0.0/24", 1, 2, 4, 8}, {"b", "10.0.0.0/25", 3, 7, 0, 0}}},
		{"allocated before a client asked for the end of the other", true, []life{{"a", "10.0.0.0/24", 1, 2, 7, 8}, {"b", "10.0.0.0/25", 3, 4, 0, 0}}},
		{"both at the same time, and both stay", true, []life{{"a", "10.0.0.0/24", 1, 5, 0, 0}, {"b", "10.0.0.7/32", 1, 5, 0, 0}}},
		{"next to each other", false, []life{{"a", "10.0.0.0/25", 1, 5, 0, 0}, {"b", "10.0.0.128/25", 1, 5, 0, 0}}},
		{"a third comes in a later piece, while the first is still there", true, []life{
			{"a", "10.0.0.0/25", 1, 2, 0, 0}, {"b", "10.0.0.128/25", 4, 5, 7, 8}, {"c", "10.0.0.0/24", 10, 11, 0, 0},
		}},
	} {
		t.Run(test.what, func(t *testing.T) {
			got := check(test.lives...)
			if len(got.Unknown) > 0 || (len(got.Bad) > 0) != test.bad {
				t.Errorf("%+v", got)
			}
		})
	}
}
