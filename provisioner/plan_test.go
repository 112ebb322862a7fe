package provisioner

import (
	"math/big"
	"slices"
	"testing"
)

func TestNeedsAreUnmetByRoomsThatAreTooSmall(t *testing.T) {
	roomOf := func(available int64, largest int) room { return room{big.NewInt(available), largest} }
	for name, tc := range map[string]struct {
		needs []need
		rooms []room
		bits  int
		want  []need
	}{
		"nothing":                       {nil, nil, 32, nil},
		"no room":                       {[]need{{28, 1}}, nil, 32, []need{{28, 1}}},
		"no blocks":                     {[]need{{28, 0}}, nil, 32, nil},
		"an empty pool":                 {[]need{{28, 16}}, []room{newRoom(24, 32)}, 32, nil},
		"one more than it has":          {[]need{{28, 17}}, []room{newRoom(24, 32)}, 32, []need{{28, 1}}},
		"two pools":                     {[]need{{28, 17}}, []room{newRoom(24, 32), newRoom(24, 32)}, 32, nil},
		"as large as the pool":          {[]need{{24, 1}}, []room{newRoom(24, 32)}, 32, nil},
		"larger than the pool":          {[]need{{23, 1}}, []room{newRoom(24, 32), newRoom(24, 32)}, 32, []need{{23, 1}}},
		"free space in smaller blocks":  {[]need{{26, 1}}, []room{roomOf(128, 27)}, 32, []need{{26, 1}}},
		"one length takes from another": {[]need{{28, 16}, {25, 1}}, []room{newRoom(24, 32)}, 32, []need{{28, 8}}},
		"the largest first":             {[]need{{28, 1}, {23, 1}, {26, 1}}, nil, 32, []need{{23, 1}, {26, 1}, {28, 1}}},
		"IPv6":                          {[]need{{64, 70000}}, []room{newRoom(48, 128)}, 128, []need{{64, 4464}}},
		"all of IPv6":                   {[]need{{1, 3}}, []room{newRoom(0, 128)}, 128, []need{{1, 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			before := slices.Clone(tc.needs)
			if got := unmet(tc.needs, tc.rooms, tc.bits); !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
			if got := unmet(tc.needs, tc.rooms, tc.bits); !slices.Equal(got, tc.want) || !slices.Equal(tc.needs, before) {
				t.Errorf("the second time: got %v with %v, want %v: an argument was changed", got, tc.needs, tc.want)
			}
		})
	}
}
