package allocator

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
)

// rangesOf returns a root pool that occupies one block of its CIDR.
func rangesOf(block string) ipam.Pool {
	cidr := netip.MustParsePrefix("10.9.0.0/24")
	return ipam.Pool{
		Key: ipam.PoolNamed("r"), Home: parent().Home, CIDR: cidr, Family: ipam.IPv4, Length: 24,
		Occupied: space.NewRanges(cidr, []space.Range{space.RangeOf(netip.MustParsePrefix(block))}),
	}
}

func TestRangesAreOccupiedOnlyIfFeatureIsOn(t *testing.T) {
	var rows []messages.Row
	runNamedOnReplica(t, "off", func(t *testing.T, a *Allocator, _ *steady) {
		if _, err := a.PoolOrder(rangesOf("10.9.0.0/30")); err != nil {
			t.Errorf("while it is on: %v", err)
		}
		a.PoolRanges = false
		whole := rangesOf("10.9.0.0/30")
		whole.Occupied = nil
		if _, err := a.PoolOrder(whole); err != nil {
			t.Errorf("a pool that occupies its CIDR: %v", err)
		}
		_, err := a.PoolOrder(rangesOf("10.9.0.0/30"))
		policy, ok := errors.AsType[*ipam.PolicyError](err)
		if !ok || policy.Field != "spec.occupies" {
			t.Fatalf("got %v, want that spec.occupies is refused", err)
		}
		rows = append(rows, messages.Row{Object: "IPPool", On: messages.CreateOrUpdate, Answer: messages.Invalid, Message: policy.Field + ": " + policy.Remedy})
	})
	messages.Golden(t, rows)
}

func TestEditsWaitUntilFormerRecordsAreReleased(t *testing.T) {
	var rows []messages.Row
	runNamedOnReplica(t, "many", func(t *testing.T, a *Allocator, _ *steady) {
		for n := range maxFormer + 1 {
			pool := rangesOf(fmt.Sprintf("10.9.0.%d/32", n))
			pool.Spec.UID = "1"
			order, err := a.PoolOrder(pool)
			must(t, err)
			err = a.CheckEdits(pool)
			if n < maxFormer {
				order.Origin, order.HolderUID = OriginController, "1"
				must(t, err)
				_, err = a.Allocate(t.Context(), order)
				must(t, err)
				continue
			}
			policy, ok := errors.AsType[*ipam.PolicyError](err)
			if !ok {
				t.Fatalf("got %v, want that the edit waits", err)
			}
			rows = append(rows, messages.Row{Object: "IPPool", On: "update", Answer: messages.Invalid, Value: fmt.Sprint(policy.Value), Message: fmt.Sprintf("%s: Invalid value: %v: %s", policy.Field, policy.Value, policy.Remedy)})
		}
	})
	messages.Golden(t, rows)
}

// TestRecordOfEditIsMadeAgainForPoolThatIsMadeAgain edits a pool, and makes it again with the blocks of the
// edit: the name of its first record is taken.
func TestRecordOfEditIsMadeAgainForPoolThatIsMadeAgain(t *testing.T) {
	runNamedOnReplica(t, "again", func(t *testing.T, a *Allocator, _ *steady) {
		allocate := func(block, uid string) (ipam.Record, Order, error) {
			o, err := a.PoolOrder(rangesOf(block))
			must(t, err)
			o.Origin, o.HolderUID = OriginController, uid
			record, err := a.Allocate(t.Context(), o)
			return record, o, err
		}
		first, _, err := allocate("10.9.0.0/30", "1")
		must(t, err)
		former, _, err := allocate("10.9.0.0/29", "1")
		must(t, err)
		first, err = a.TakeOver(t.Context(), first, "2") // as the controller does
		must(t, err)
		edited, edit, err := allocate("10.9.0.0/29", "2")
		if err != nil || edited.Name != former.Name || edited.UID == former.UID {
			t.Fatalf("got %+v, %v; want a new record named %s", edited, err, former.Name)
		}
		must(t, a.Release(t.Context(), first))
		edit.Record = edited.Name
		if err := a.abandonRecord(t.Context(), edit, edited, ledger.ErrLost); !errors.Is(err, ipam.ErrPoolInUse) {
			t.Errorf("giving up the only record of a pool that stays: %v", err)
		}
	})
}

// TestCreateLeavesFormerRangesToController creates a pool of the name of one that was forced away.
func TestCreateLeavesFormerRangesToController(t *testing.T) {
	var rows []messages.Row
	runNamedOnReplica(t, "former", func(t *testing.T, a *Allocator, _ *steady) {
		order := func(pool ipam.Pool, origin Origin, uid string) Order {
			pool.Spec.UID = uid
			o, err := a.PoolOrder(pool)
			must(t, err)
			o.Origin, o.HolderUID = origin, uid
			return o
		}
		first, err := a.Allocate(t.Context(), order(rangesOf("10.9.0.0/30"), OriginController, "1"))
		must(t, err)
		edited, err := a.Allocate(t.Context(), order(rangesOf("10.9.0.0/29"), OriginController, "1"))
		must(t, err)
		if first.Name == edited.Name || convert.PoolOf(edited.Holder) != ipam.PoolNamed("r") {
			t.Fatalf("the edit has the record %s of %s", edited.Name, edited.Holder)
		}
		_, err = a.Allocate(t.Context(), order(rangesOf("10.9.0.8/29"), OriginAdmission, ""))
		missing, ok := errors.AsType[*ipam.MissingError](err)
		if !ok {
			t.Fatalf("a create with other ranges: %v, want that it waits", err)
		}
		rows = append(rows, messages.Row{Object: "IPPool", On: "create", Answer: "warning", Message: missing.Message})
		taken, err := a.TakeOver(t.Context(), edited, "2")
		if must(t, err); taken.UID != edited.UID || taken.HolderUID != "2" {
			t.Errorf("its controller has %s of the UID %s, want the record that is there", taken.Name, taken.HolderUID)
		}
	})
	messages.Golden(t, rows)
}
