package command

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Waiting represents the flag --wait: the longest time to wait; zero means not at all.
type Waiting struct{ AtMost time.Duration }

// waitDefault is the longest time that --wait waits if it has no value.
const waitDefault = 5 * time.Minute

// BindWait binds the flags --wait and --timeout; until completes their help.
func BindWait(cmd *cobra.Command, until string) *Waiting {
	w := &Waiting{}
	cmd.Flags().DurationVar(&w.AtMost, "wait", 0, "wait until "+until+", for 5m at most or for the given time, such as --wait=30s")
	cmd.Flag("wait").NoOptDefVal = waitDefault.String()
	return w
}

// ErrInterrupted means that the caller does not want to wait any longer.
var ErrInterrupted = errors.New("interrupted")

// Awaited represents one object that is watched.
type Awaited[T client.Object] struct {
	Client client.WithWatch
	// Named has the name, and List is a list of the kind.
	Named T
	List  client.ObjectList
	// Until reports whether the object is in the awaited state. Wait calls it with each state
	// that it sees, and calls Gone when the object is deleted.
	Until func(T) (bool, error)
	Gone  func() error
}

// Wait watches the object until it is in the awaited state. The error is
// context.DeadlineExceeded if it is not in time, and ErrInterrupted if the caller does not wait
// any longer.
func (a *Awaited[T]) Wait(ctx context.Context, atMost time.Duration) error {
	caller := ctx
	ctx, cancel := context.WithTimeout(klog.NewContext(ctx, logr.Discard()), atMost)
	defer cancel()
	for {
		err := a.once(ctx)
		switch {
		case err == nil:
			return nil
		case caller.Err() != nil:
			return ErrInterrupted
		case ctx.Err() != nil:
			return context.DeadlineExceeded
		case !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err):
			return err
		}
	}
}

// once reads the object and watches it from then on.
func (a *Awaited[T]) once(ctx context.Context) error {
	err := a.Client.Get(ctx, client.ObjectKeyFromObject(a.Named), a.Named)
	if apierrors.IsNotFound(err) {
		return a.Gone()
	}
	if err != nil {
		return err
	}
	if done, err := a.Until(a.Named); done || err != nil {
		return err
	}
	_, err = watchtools.Until(ctx, a.Named.GetResourceVersion(), &cache.ListWatch{WatchFuncWithContext: a.watch}, a.judge)
	if errors.Is(err, errGone) {
		return a.Gone()
	}
	return err
}

func (a *Awaited[T]) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return a.Client.Watch(ctx, a.List, &client.ListOptions{
		Namespace:     a.Named.GetNamespace(),
		FieldSelector: fields.OneTermEqualSelector("metadata.name", a.Named.GetName()),
		Raw:           &options,
	})
}

// errGone ends a watch of an object that is deleted.
var errGone = errors.New("the object is gone")

func (a *Awaited[T]) judge(event watch.Event) (bool, error) {
	switch event.Type {
	case watch.Deleted:
		return false, errGone
	case watch.Error:
		return false, apierrors.FromObject(event.Object)
	}
	seen, ok := event.Object.(T)
	if !ok {
		return false, nil
	}
	return a.Until(seen)
}
