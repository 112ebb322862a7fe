package operator

import (
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/version"
)

// leaseName is that of the Lease, in the operator's namespace.
const leaseName = "cadastre.ipam.cadastre.dev"

// electLeader has the manager elect the leader among the replicas, by a Lease. Without
// LeaderElect every replica is one.
//
// The lease is short, for a quick failover, and not lost while the API server does not
// answer. That there is one leader at most is for the sake of its writes, and no promise
// rests on it (docs/reliability.md).
func electLeader(mgr *ctrl.Options, cfg *rest.Config, o Options) error {
	if !o.LeaderElect {
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	duration, renew, retry := o.lease()
	own := resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())}
	lease, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, o.Namespace, leaseName, own, cfg, renew)
	if err != nil {
		return err
	}
	label(lease, version.Own())
	mgr.LeaderElection, mgr.LeaderElectionID, mgr.LeaderElectionReleaseOnCancel = true, leaseName, true
	mgr.LeaderElectionResourceLockInterface = kubeutil.NewPatientLease(lease, o.Log.WithName("lease"))
	mgr.LeaseDuration, mgr.RenewDeadline, mgr.RetryPeriod = &duration, &renew, &retry
	return nil
}

// label has the leader say on its lease which version it is, for `kubectl ipam version`. A
// version that is no value of a label is left out: the lease is needed more.
func label(lease resourcelock.Interface, version string) {
	value := strings.NewReplacer("+", "_", "(", "", ")", "").Replace(version)
	if lease, ok := lease.(*resourcelock.LeaseLock); ok && len(validation.IsValidLabelValue(value)) == 0 {
		lease.Labels = map[string]string{versionLabel: value}
	}
}

// versionLabel is one of Kubernetes' recommended labels.
const versionLabel = "app.kubernetes.io/version"
