// Package integration runs the whole operator, webhooks included, on a real control plane, and
// plays the actions of its users. Each topic has a separate file, namespace and address ranges.
package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// orphanGrace is short here: tests wait for it.
const orphanGrace = 3 * time.Second

// platformProject is the platform's own project.
const platformProject = "the-platform"

var (
	running *suite.World
	k8s     client.WithWatch
)

func TestIntegration(t *testing.T) {
	specs.Run(t, "Integration", 20*time.Second, 20*time.Millisecond)
}

var _ = BeforeSuite(func() {
	running = suite.Start(GinkgoTB(), cluster.Options{
		ControllerManager: true, Managers: 1, OrphanGrace: orphanGrace,
		ManagerArgs: []string{
			"--platform-project=" + platformProject,
			"--logging-format=json", "-v=2", // read by the specs about the log
		},
	})
	k8s = running
})

// deleted deletes an object.
func deleted(ctx context.Context, obj client.Object) {
	GinkgoHelper()
	Expect(k8s.Delete(ctx, obj)).To(Succeed())
}

// phase returns the phase of a claim.
func phase(ctx context.Context, claim *v1alpha1.IPClaim) func() v1alpha1.ClaimPhase {
	return func() v1alpha1.ClaimPhase { return specs.Stored(ctx, k8s, claim).Status.Phase }
}

// reasons returns those of an object's conditions, by type, with their status.
func reasons(conditions []metav1.Condition) map[string]string {
	by := map[string]string{}
	for _, c := range conditions {
		by[c.Type] = fmt.Sprintf("%s/%s", c.Status, c.Reason)
	}
	return by
}

// available returns the number of free addresses in the status of a pool.
func available(ctx context.Context, pool string) func() string {
	return func() string {
		obj := &v1alpha1.IPPool{}
		Expect(k8s.Get(ctx, client.ObjectKey{Name: pool}, obj)).To(Succeed())
		if obj.Status.Capacity == nil {
			return ""
		}
		return obj.Status.Capacity.Available
	}
}
