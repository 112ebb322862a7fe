package play

import (
	"testing"

	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
)

func TestRollbacksFailBench(t *testing.T) {
	records, claims := metrics.StoreRollbacks+`{kind="IPAllocation"} `, metrics.StoreRollbacks+`{kind="IPClaim"} `
	for text, fails := range map[string]bool{
		records + "0\n" + claims + "0\n": false,
		records + "1\n" + claims + "0\n": true,
		records + "0\n" + claims + "2\n": true,
		claims + "0\n":                   true,
		"":                               true,
	} {
		if err := judgeRollbacks(readMetrics([]byte(text))); (err != nil) != fails {
			t.Errorf("%q: got %v, want an error: %t", text, err, fails)
		}
	}
}
