package convert

import (
	"fmt"
	"net/netip"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
)

// rowsOf returns errors about an object's own fields, for the table of messages.
func rowsOf(object string, errs ...*field.Error) []messages.Row {
	var rows []messages.Row
	for _, err := range errs {
		if err == nil {
			continue
		}
		row := messages.Row{Object: object, On: messages.CreateOrUpdate, Answer: messages.Invalid, Message: err.Error()}
		switch err.Type {
		case field.ErrorTypeInvalid, field.ErrorTypeNotSupported:
			row.Value = fmt.Sprint(err.BadValue)
			if by, is := err.BadValue.(*v1alpha1.PoolSelector); is {
				row.Value = by.MatchExpressions[0].Key
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// TestWaitingClaimStatesRemedy covers the errors of the core.
func TestWaitingClaimStatesRemedy(t *testing.T) {
	block, other := netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("10.0.0.0/25")
	pool := ipam.PoolNamed("p")
	holder := HolderOfClaim(ipam.Name{Namespace: "team", Name: "other"})
	taken := &ipam.TakenError{Block: block, Pool: pool, Holder: holder, Overlap: other}
	limit := &ipam.LimitError{Subject: "pool q", Project: "red", Unit: "address", Most: space.CountOf64(8), Held: space.CountOf64(8)}
	var rows []messages.Row
	for value, err := range map[string]error{
		"no free /24 in pool p:":      &ipam.ExhaustedError{Pools: []ipam.PoolKey{pool}, Bits: 24, Largest: ipam.NoLength},
		"no free /24 in pool p;":      &ipam.ExhaustedError{Pools: []ipam.PoolKey{pool}, Bits: 24, Largest: 26, Limits: []*ipam.LimitError{limit}},
		"held by IPClaim team/other:": taken,
		"10.0.0.0/24 is in use in":    taken.Redacted(),
		"10.0.0.0/24 is not handed":   &ipam.TakenError{Block: block, Pool: pool},
		"8 addresses":                 limit,
	} {
		outcome := ClaimWaits(fmt.Errorf("binding: %w", err))
		rows = append(rows, messages.Row{Object: "IPClaim", On: "condition Ready", Answer: "False, " + outcome.Reason, Value: value, Message: outcome.Message})
	}
	bound := ClaimBound(ipam.Record{Block: block, Pool: pool}, ipam.Pool{})
	rows = append(rows, messages.Row{Object: "IPClaim", On: "condition Ready", Answer: "True, " + bound.Reason, Value: "10.0.0.0/24", Message: bound.Message})
	messages.Golden(t, rows)
}
