package live

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// TestTallyMatchesRegister adds and removes blocks at random, overlapping ones among
// them, changes the ranges of the pool, and compares the counts with those of a new register.
func TestTallyMatchesRegister(t *testing.T) {
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 0))
		spec := build.Pool("p").CIDR("10.0.0.0/24").Obj()
		tally, records := newTally(), map[string]*register.Record{}
		tally.describe(readPool(t, spec))
		overlapped := false
		for step := range 200 {
			switch n := random.IntN(20); {
			case n < 11:
				record := anyRecord(random, step)
				records[record.UID] = record
				tally.put(record)
			case n < 12:
				spec = build.Pool("p").CIDR("10.0.0.0/24").Reserved(fmt.Sprintf("10.0.0.%d/28", 16*random.IntN(16))).Obj()
				tally.describe(readPool(t, spec))
			default:
				for uid, record := range records {
					tally.remove(record)
					delete(records, uid)
					break
				}
			}
			objects := &register.Objects{Pools: []v1alpha1.IPPool{*spec}}
			for _, record := range records {
				objects.Records = append(objects.Records, record)
			}
			overlapped = overlapped || tally.overlap
			want, _ := register.Build(objects).Pools[0].Usage()
			got := tally.usage()
			got.Used = got.Held
			if got != want {
				t.Fatalf("seed %d, step %d:\n got %+v\nwant %+v", seed, step, got, want)
			}
		}
		if !overlapped {
			t.Errorf("seed %d: no two blocks overlapped", seed)
		}
	}
}

func readPool(t *testing.T, spec v1alpha1.Pool) ipam.Pool {
	t.Helper()
	pool, errs := convert.Pool(spec)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return pool
}

// anyRecord returns one of 60 records: the same again is another state of it.
func anyRecord(random *rand.Rand, step int) *register.Record {
	number := random.IntN(60)
	bits := 26 + number%7
	at := netip.AddrFrom4([4]byte{10, 0, 0, byte(number * 37)})
	record := &register.Record{Record: ipam.Record{
		UID: fmt.Sprint(number), Version: fmt.Sprint(step), Name: ipam.Name{Namespace: "team", Name: fmt.Sprint(number)},
		Block: netip.PrefixFrom(at, bits).Masked(), Pool: ipam.PoolNamed("p"), Purpose: ipam.PurposeClaim,
		State: []ipam.State{ipam.StateBound, ipam.StateRetained, ipam.StateCooling}[random.IntN(3)],
	}}
	if number%9 == 0 {
		record.Purpose, record.State = ipam.PurposePool, ipam.StateBound
		record.Holder = convert.HolderOfPool(ipam.PoolNamed(fmt.Sprint("child-", number)))
	}
	return record
}
