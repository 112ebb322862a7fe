package app

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

// waiting is the flag --wait: for how long to wait; zero: not at all.
type waiting struct{ atMost time.Duration }

// waitDefault is for how long --wait waits where it has no value.
const waitDefault = 5 * time.Minute

func bindWait(cmd *cobra.Command, until string) *waiting {
	w := &waiting{}
	cmd.Flags().DurationVar(&w.atMost, "wait", 0, "wait until "+until+", for 5m at most or for as long as is said, such as --wait=30s")
	cmd.Flag("wait").NoOptDefVal = waitDefault.String()
	return w
}

// errInterrupted means that the caller does not want to wait any longer.
var errInterrupted = errors.New("interrupted")

// awaited is one object that is watched.
type awaited[T client.Object] struct {
	client client.WithWatch
	// named has the name, and list is a list of the kind.
	named T
	list  client.ObjectList
	// until reports whether the object is as is waited for. It is called with each state
	// that is seen, and gone once it is deleted.
	until func(T) (bool, error)
	gone  func() error
}

// wait watches the object until it is as is waited for. The error is
// context.DeadlineExceeded where it is not in time, and errInterrupted where the caller
// does not wait any longer.
func (a *awaited[T]) wait(ctx context.Context, atMost time.Duration) error {
	caller := ctx
	ctx, cancel := context.WithTimeout(klog.NewContext(ctx, logr.Discard()), atMost)
	defer cancel()
	for {
		err := a.once(ctx)
		switch {
		case err == nil:
			return nil
		case caller.Err() != nil:
			return errInterrupted
		case ctx.Err() != nil:
			return context.DeadlineExceeded
		case !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err):
			return err
		}
	}
}

// once reads the object and watches it from then on.
func (a *awaited[T]) once(ctx context.Context) error {
	err := a.client.Get(ctx, client.ObjectKeyFromObject(a.named), a.named)
	if apierrors.IsNotFound(err) {
		return a.gone()
	}
	if err != nil {
		return err
	}
	if done, err := a.until(a.named); done || err != nil {
		return err
	}
	_, err = watchtools.Until(ctx, a.named.GetResourceVersion(), &cache.ListWatch{WatchFuncWithContext: a.watch}, a.judge)
	if errors.Is(err, errGone) {
		return a.gone()
	}
	return err
}

func (a *awaited[T]) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return a.client.Watch(ctx, a.list, &client.ListOptions{
		Namespace:     a.named.GetNamespace(),
		FieldSelector: fields.OneTermEqualSelector("metadata.name", a.named.GetName()),
		Raw:           &options,
	})
}

// errGone ends a watch of an object that is deleted.
var errGone = errors.New("the object is gone")

func (a *awaited[T]) judge(event watch.Event) (bool, error) {
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
	return a.until(seen)
}
