package ipam

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

func usage(t *testing.T, blocks ...string) Usage {
	t.Helper()
	var u Usage
	for _, b := range blocks {
		u = u.Add(UsageOf(netip.MustParsePrefix(b)))
	}
	return u
}

func TestLimitCoversBlocksAndAddresses(t *testing.T) {
	two, three := space.CountOf64(2), space.CountOf64(3)
	for name, c := range map[string]struct {
		limit   Limit
		project string
		held    Usage
		want    string
	}{
		"no limit":                      {Limit{}, "x", usage(t, "10.0.0.0/8"), ""},
		"as many blocks as are allowed": {Limit{Blocks: Maximum{true, two}}, "x", usage(t, "10.0.0.1/32"), ""},
		"one block too many": {
			Limit{Blocks: Maximum{true, two}}, "x", usage(t, "10.0.0.1/32", "10.0.0.2/32"),
			"exceeded limit: pool p allows project x 2 blocks, 2 are held: release some, or ask for a higher limit",
		},
		"one address too many": {
			Limit{Addresses: Maximum{true, three}}, "x", usage(t, "10.0.0.0/31"),
			"exceeded limit: pool p allows project x 3 addresses, 2 are held: release some, or ask for a higher limit",
		},
		"none at all": {
			Limit{Blocks: Maximum{Set: true}}, "x", Usage{},
			"exceeded limit: pool p allows project x 0 blocks, 0 are held: release some, or ask for a higher limit",
		},
		"one is held": {
			Limit{Blocks: Maximum{true, space.CountOf64(1)}}, "x", usage(t, "10.0.0.1/32"),
			"exceeded limit: pool p allows project x 1 block, 1 is held: release some, or ask for a higher limit",
		},
		"no project": {Limit{Blocks: Maximum{Set: true}}, "", Usage{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.limit.Check("pool p", c.project, c.held, UsageOf(netip.MustParsePrefix("10.0.0.4/31")))
			if c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if _, ok := errors.AsType[*LimitError](err); err != nil && !ok {
				t.Errorf("got a %T", err)
			}
		})
	}
}

func TestLimitIsSetByEitherPart(t *testing.T) {
	for want, limits := range map[bool][]Limit{
		false: {{}},
		true:  {{Blocks: Maximum{Set: true}}, {Addresses: Maximum{Set: true}}, {Maximum{Set: true}, Maximum{Set: true}}},
	} {
		for _, l := range limits {
			if l.IsSet() != want {
				t.Errorf("%+v: set %t, want %t", l, l.IsSet(), want)
			}
		}
	}
}
