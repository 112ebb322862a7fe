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

// waitDefault is the longest time that --wait waits if it has no value.
const waitDefault = 5 * time.Minute

// BindWait binds the flag --wait: the longest time to wait; zero means not at all. until completes
// its help.
func BindWait(cmd *cobra.Command, atMost *time.Duration, until string) {
	cmd.Flags().DurationVar(atMost, "wait", 0, "wait until "+until+", for 5m at most or for the given time, such as --wait=30s")
	cmd.Flag("wait").NoOptDefVal = waitDefault.String()
}

// The errors of Await.
var (
	// ErrInterrupted means that the caller does not want to wait any longer.
	ErrInterrupted = errors.New("interrupted")
	// ErrDeleted means that the object does not exist any more.
	ErrDeleted = errors.New("the object is gone")
)

// Await watches an object until it is in the awaited state, and returns the last state that it has
// seen. The error is context.DeadlineExceeded if the object is not in the state in time.
func Await[T client.Object](ctx context.Context, c client.WithWatch, object T, atMost time.Duration, isReached func(T) bool) (last T, err error) {
	caller, last := ctx, object
	ctx, cancel := context.WithTimeout(klog.NewContext(ctx, logr.Discard()), atMost)
	defer cancel()
	for {
		err := watchOnce(ctx, c, object, func(seen T) bool {
			last = seen
			return isReached(seen)
		})
		switch {
		case err == nil, errors.Is(err, ErrDeleted):
			return last, err
		case caller.Err() != nil:
			return last, ErrInterrupted
		case ctx.Err() != nil:
			return last, context.DeadlineExceeded
		case !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err):
			return last, err
		}
	}
}

// watchOnce reads the object and watches it from then on.
func watchOnce[T client.Object](ctx context.Context, c client.WithWatch, object T, isReached func(T) bool) error {
	err := c.Get(ctx, client.ObjectKeyFromObject(object), object)
	switch {
	case apierrors.IsNotFound(err):
		return ErrDeleted
	case err != nil:
		return err
	case isReached(object):
		return nil
	}
	kind := KindOf(object)
	list, err := c.Scheme().New(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err != nil {
		return err
	}
	watcher := &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		return c.Watch(ctx, list.(client.ObjectList), &client.ListOptions{
			Namespace: object.GetNamespace(), FieldSelector: fields.OneTermEqualSelector("metadata.name", object.GetName()), Raw: &options,
		})
	}}
	_, err = watchtools.Until(ctx, object.GetResourceVersion(), watcher, func(event watch.Event) (bool, error) {
		switch event.Type {
		case watch.Deleted:
			return false, ErrDeleted
		case watch.Error:
			return false, apierrors.FromObject(event.Object)
		}
		seen, ok := event.Object.(T)
		return ok && isReached(seen), nil
	})
	return err
}
