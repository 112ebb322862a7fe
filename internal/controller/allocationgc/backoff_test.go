package allocationgc

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestARecordIsReconciledAgainWithinTheGracePeriodHoweverOftenItFailed(t *testing.T) {
	const grace = 7 * time.Second
	limiter, request := backOff(grace), reconcile.Request{}
	first := limiter.When(request)
	var last time.Duration
	for range 100 {
		last = limiter.When(request)
	}
	if first >= grace || last != grace {
		t.Errorf("the first delay is %s and the last %s, want less than %s and exactly that", first, last, grace)
	}
}
