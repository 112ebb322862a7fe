package operator

import (
	"os"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

func TestReplicaEndsWithinTerminationGracePeriod(t *testing.T) {
	text, err := os.ReadFile("../../config/manager/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var deployment appsv1.Deployment
	if err := yaml.Unmarshal(text, &deployment); err != nil {
		t.Fatal(err)
	}
	grace := deployment.Spec.Template.Spec.TerminationGracePeriodSeconds
	if grace == nil || shutdownTimeout > time.Duration(*grace)*time.Second-2*time.Second {
		t.Errorf("it ends within %s, want at least 2 s less than terminationGracePeriodSeconds of its Pod", shutdownTimeout)
	}
}
