package allocationgc

import (
	"testing"
	"time"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
)

func TestRetainedBlockEvent(t *testing.T) {
	record := recordNamed("a", ipam.StateBound)
	record.Holder = convert.HolderOfClaim(record.Name)
	message := retained(record, time.Unix(1_800_000_000, 0))
	messages.Golden(t, []messages.Row{{Object: "IPAllocation", On: "event", Answer: "Normal, Retained", Value: record.Block.String(), Message: message}})
}
