package kubeutil

import (
	"context"
	"errors"
	"net/http"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// PatientLease implements the lock of a leader election that is lost to another replica, and
// not to an API server that does not answer in time. With client-go's own lock, the process of
// a leader ends if it cannot renew its lease, and with a short lease, for a quick failover,
// every stall ends it.
//
// Measured on a real API server, with a lease of 2 s and 500 claims: with two managers the time
// until one leads again, and with one manager the time until a claim can be created again, if a
// process that ends is restarted as by the kubelet, after 1, 10 and 20 s:
//
//	                                         PatientLease   client-go's
//	API server paused for 5 s, until led     0.2 s          2.4 s, one exit
//	API server down for 20 s, until created  3.3 s          12.7 s, three exits
//	leader killed, until led                 2.8 s          2.7 s
//
// Times count from when the API server answers again; medians of 3, means of 2, and single
// runs. A lease of 15 s outlasts such a pause too, and takes 17 s if the leader is killed.
//
// A leader continues for longer than its lease as long as the API server does not answer it,
// while another replica that it does answer may lead already. It is for controllers whose
// writes are safe with two leaders.
//
// It serves one elector, whose calls come one at a time.
type PatientLease struct {
	resourcelock.Interface
	log logr.Logger
	// record is the lease as the API server last returned or accepted it, and raw its text.
	record resourcelock.LeaderElectionRecord
	raw    []byte
	// conflict is the error of an update that came after another one, until the lease is read: the other may be a
	// renewal of this process that was not answered.
	conflict error
	// isUnread reports whether the API server did not answer the last read of the holder.
	isUnread bool
	// isLate reports whether the log states that the lease could not be renewed.
	isLate bool
}

// NewPatientLease returns a PatientLease that locks as the given lock does.
func NewPatientLease(lock resourcelock.Interface, log logr.Logger) *PatientLease {
	return &PatientLease{Interface: lock, log: log}
}

// Get implements resourcelock.Interface. A holder that gets no answer reads the lease as it was.
func (l *PatientLease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	l.isUnread = err != nil && l.continues(err)
	switch {
	case err == nil:
		l.record, l.raw, l.conflict = *record, raw, nil
	case l.isUnread:
		return &l.record, l.raw, nil
	}
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (l *PatientLease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := l.Interface.Create(ctx, record)
	if err != nil { // the inner lock has no lease then, and can update none
		record = resourcelock.LeaderElectionRecord{}
	}
	l.record = record
	return err
}

// Update implements resourcelock.Interface. A lease that could not be renewed is no error as long as no other
// replica is known to have acquired it. After a conflict the lease must be read: until then no update is sent. A
// lease that was read as another replica's is not given back.
func (l *PatientLease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	switch {
	case l.isOurs(record) && l.conflict != nil && l.isUnread:
		l.isUnread = false
		return nil
	case l.isOurs(record) && l.conflict != nil:
		return l.conflict
	case record.HolderIdentity == "" && !l.isOurs(l.record):
		return errNotHeld
	}
	err := l.Interface.Update(ctx, record)
	switch {
	case err == nil:
		l.record, l.isLate = record, false
	case apierrors.IsConflict(err):
		l.conflict, l.isUnread = err, false
	case l.isOurs(record) && l.continues(err):
		return nil
	}
	return err
}

// errNotHeld is the error of giving back the lease of another replica.
var errNotHeld = errors.New("another replica holds the lease")

// continues reports whether this process continues to hold the lease after a failed request.
func (l *PatientLease) continues(err error) bool {
	if !l.isOurs(l.record) || !isStall(err) {
		return false
	}
	if !l.isLate {
		l.log.Info("Could not renew the leader lease; continuing until another replica acquires it", "lease", l.Describe(), "error", err.Error())
		l.isLate = true
	}
	return true
}

func (l *PatientLease) isOurs(record resourcelock.LeaderElectionRecord) bool {
	return record.HolderIdentity == l.Identity()
}

// isStall reports whether an error leaves the holder of the lease open: there is no answer, or
// one that asks to try again. An answer of the API server about the lease, or about our rights,
// does not.
func isStall(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return !errors.Is(err, context.Canceled)
	}
	return status.Status().Code == http.StatusTooManyRequests || status.Status().Code >= http.StatusInternalServerError
}
