package operator

import (
	"context"
	"errors"
	"net/http"
	"os"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/cadastre-dev/cadastre/internal/leader"
)

// leaseName is that of the Lease, in the operator's namespace.
const leaseName = "cadastre.ipam.cadastre.dev"

// newElection elects the leader among the replicas, by a Lease; without LeaderElect
// every replica is one.
func newElection(cfg *rest.Config, mgr ctrl.Manager, o Options) (*leader.Election, error) {
	if !o.LeaderElect {
		return leader.New(mgr, leader.Options{})
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	duration, renew, retry := o.lease()
	own := resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())}
	lease, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, o.Namespace, leaseName, own, cfg, renew)
	if err != nil {
		return nil, err
	}
	return leader.New(mgr, leader.Options{
		Lock: &patientLease{Interface: lease, log: mgr.GetLogger().WithName("lease")}, Name: leaseName,
		LeaseDuration: duration, RenewDeadline: renew, RetryPeriod: retry,
	})
}

// patientLease is a lease that is lost to somebody else, and not to an API server that
// does not answer in time: a leader that is elected anew looks at everything again, and
// does not know which deletions were seen. So a short lease, for a quick failover, would
// make work of every stall.
//
// A leader may go on for longer than its lease: that there is one at most is for the
// sake of its writes, and no promise rests on it (docs/reliability.md).
//
// It is for one elector, whose calls come one at a time.
type patientLease struct {
	resourcelock.Interface
	log logr.Logger
	// holds is whether the lease was ours when the API server last answered.
	holds bool
	// late says that it could not be renewed the last time.
	late bool
}

// Get implements resourcelock.Interface.
func (l *patientLease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil {
		l.holds = l.isOurs(*record)
	}
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (l *patientLease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := l.Interface.Create(ctx, record)
	l.holds = err == nil
	return err
}

// Update implements resourcelock.Interface. That the lease could not be renewed is
// no error for as long as nobody is known to have taken it.
func (l *patientLease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := l.Interface.Update(ctx, record)
	switch {
	case err == nil:
		l.holds, l.late = l.isOurs(record), false
		return nil
	case !l.holds || !l.isOurs(record) || !isStall(err):
		return err
	}
	if !l.late {
		l.log.Info("Could not renew the leader lease; continuing until another replica acquires it", "lease", l.Describe(), "error", err.Error())
		l.late = true
	}
	return nil
}

func (l *patientLease) isOurs(record resourcelock.LeaderElectionRecord) bool {
	return record.HolderIdentity == l.Identity()
}

// isStall reports whether an error leaves open who has the lease: no answer, or one that
// asks to try again. What the API server says of the lease, or of our rights, does not.
func isStall(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return !errors.Is(err, context.Canceled)
	}
	return status.Status().Code == http.StatusTooManyRequests || status.Status().Code >= http.StatusInternalServerError
}
