package v1alpha2

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

func TestPhaseFollowsFromConditionReady(t *testing.T) {
	for reason, want := range map[string]v1alpha1.PoolPhase{
		v1alpha1.ReasonReady:           v1alpha1.PoolReady,
		v1alpha1.ReasonFull:            v1alpha1.PoolExhausted,
		v1alpha1.ReasonPaused:          v1alpha1.PoolPaused,
		v1alpha1.ReasonProviderRunning: v1alpha1.PoolPaused,
		v1alpha1.ReasonTerminating:     v1alpha1.PoolTerminating,
		v1alpha1.ReasonConflict:        v1alpha1.PoolPending,
		"":                             "",
	} {
		pool := &InClusterIPPool{}
		if reason != "" {
			pool.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Reason: reason}}
		}
		text, err := json.Marshal(pool)
		if err == nil {
			err = json.Unmarshal(text, pool)
		}
		if err != nil || pool.Status.Phase != want {
			t.Errorf("%s: the phase is %q, want %q: %v", reason, pool.Status.Phase, want, err)
		}
	}
}
