package edit

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// TestReleaseDeletesOnlyDescribedObject expects each deletion to name the UID of the object that was
// described, so that a later one of its name stays, and a dry run to delete nothing.
func TestReleaseDeletesOnlyDescribedObject(t *testing.T) {
	claim := build.Claim("team-a", "web").Obj()
	claim.UID = "of-the-first"
	for mode, wantCalls := range map[command.DryRun]int{command.DryRunNone: 1, command.DryRunServer: 1, command.DryRunClient: 0} {
		var calls []client.DeleteOptions
		c := fake.NewClientBuilder().WithScheme(command.Scheme()).WithObjects(claim.DeepCopy()).WithInterceptorFuncs(interceptor.Funcs{
			Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, options ...client.DeleteOption) error {
				calls = append(calls, *(&client.DeleteOptions{}).ApplyOptions(options))
				return nil
			},
		}).Build()
		r := &Releasing{editing: &editing{dryRun: mode, client: c}}
		if err := r.Delete(t.Context(), &ReleaseReport{obj: claim}); err != nil {
			t.Fatal(err)
		}
		if len(calls) != wantCalls {
			t.Fatalf("--dry-run=%s: deleted %d times, want %d", string(mode), len(calls), wantCalls)
		}
		for _, call := range calls {
			if call.Preconditions == nil || call.Preconditions.UID == nil || *call.Preconditions.UID != claim.UID {
				t.Errorf("--dry-run=%s: deletes with %+v, want the UID", string(mode), call.Preconditions)
			}
			if isDry := len(call.DryRun) > 0; isDry != (mode == command.DryRunServer) {
				t.Errorf("--dry-run=%s: asks for a dry run: %t", string(mode), isDry)
			}
		}
	}
}

func TestReleaseRefusesClaimOfCluster(t *testing.T) {
	claim := build.Claim("team-a", "prod-pods").Obj()
	claim.Annotations = map[string]string{v1alpha1.AnnotationClusterNetwork: "prod/pods/0"}
	claim.Status.AllocatedCIDR = "10.64.0.0/18"
	for name, c := range map[string]struct {
		finalizers []string
		force      bool
		refused    bool
	}{
		"it is kept":                 {finalizers: []string{v1alpha1.FinalizerClusterNetwork}, refused: true},
		"it is kept, with --force":   {finalizers: []string{v1alpha1.FinalizerClusterNetwork}, force: true},
		"its Cluster was not stored": {},
	} {
		claim := claim.DeepCopy()
		claim.Finalizers = c.finalizers
		k8s := fake.NewClientBuilder().WithScheme(command.Scheme()).WithObjects(claim).Build()
		r := NewReleasing(&command.Env{Clock: clock.RealClock{}}, k8s)
		r.force = c.force
		err := r.Delete(t.Context(), r.Describe(t.Context(), claim))
		if isRefused := err != nil && strings.Contains(err.Error(), "holds the pods of Cluster prod"); isRefused != c.refused || !isRefused && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAfterwardsDescribesReleasedBlock(t *testing.T) {
	for name, c := range map[string]struct {
		policy  v1alpha1.ReclaimPolicy
		keeping ipam.Keeping
		want    string
	}{
		"it is free":            {v1alpha1.ReclaimDelete, ipam.Keeping{}, "free again as soon as"},
		"it cools down":         {v1alpha1.ReclaimDelete, ipam.Keeping{ReuseDelay: 90 * time.Minute}, "again 1h30m after"},
		"it is kept for a time": {v1alpha1.ReclaimRetain, ipam.Keeping{Retention: 720 * time.Hour}, "held for 720h,"},
		"it is kept":            {v1alpha1.ReclaimRetain, ipam.Keeping{}, "until its retention period is over"},
	} {
		if got := Afterwards(c.policy, c.keeping); !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q in it", name, got, c.want)
		}
	}
	for d, want := range map[time.Duration]string{time.Hour: "1h", 10 * time.Minute: "10m", 90 * time.Second: "1m30s", 10 * time.Second: "10s", 70 * time.Minute: "1h10m", 0: "0s"} {
		if got := inWords(d); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
