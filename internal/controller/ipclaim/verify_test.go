package ipclaim

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// TestARecordThatWasToGiveWayIsNotTheClaims plays an attempt to record a claim's block
// again that came second, and was ended when it had deleted its record, but for the
// finalizer.
func TestARecordThatWasToGiveWayIsNotTheClaims(t *testing.T) {
	claim, record := settledClaim()
	rival := record
	rival.Name.Name, rival.UID = "b-12345678", "rival"
	rival.Holder = allocator.HolderOfClaim(ipam.Name{Namespace: "team", Name: "b"})
	rival.Block = netip.MustParsePrefix("10.0.0.0/24")
	for _, test := range []struct {
		what        string
		terminating bool
		rival       []ipam.Record
		taken       bool
	}{
		{"it was to give way", true, []ipam.Record{rival}, true},
		{"to one that has gone since", true, nil, false},
		{"it came first, and the other gives way", false, []ipam.Record{rival}, false},
	} {
		t.Run(test.what, func(t *testing.T) {
			record.Terminating = test.terminating
			c := &Controller{Allocator: allocatorWith(t, append(test.rival, record)...)}
			s := &scope{claim: claim}
			if err := read(s); err != nil {
				t.Fatal(err)
			}
			err := c.verify(t.Context(), s)
			taken, ok := errors.AsType[*ipam.TakenError](err)
			switch {
			case ok != test.taken || !ok && err != nil:
				t.Errorf("%v, want that it is taken: %t", err, test.taken)
			case ok && taken.Holder != rival.Holder:
				t.Errorf("%v, want that %s has it", err, rival.Holder)
			case !ok && s.record.UID != record.UID:
				t.Errorf("the claim has the record %q", s.record.UID)
			}
		})
	}
}
