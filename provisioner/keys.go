package provisioner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// state represents the step of a range, as the documentation of the package describes.
type state string

const (
	provisioning state = "Provisioning"
	ready        state = "Ready"
	releasing    state = "Releasing"
)

// entry holds one range in the ConfigMap, by the name of its pool.
type entry struct {
	Class        string            `json:"class"`
	Family       v1alpha1.IPFamily `json:"family"`
	PrefixLength int               `json:"prefixLength"`
	State        state             `json:"state"`
}

// errStale means that another process has changed an entry.
var errStale = errors.New("another process has changed the key of the range: the lease may be lost")

// keys reads and writes the ConfigMap. It reads past caches. Its methods may be called concurrently.
type keys struct {
	client client.Client
	live   client.Reader
	name   client.ObjectKey
}

// list returns the entries by the name of their pool. It logs those that are not readable, and leaves them out.
func (k *keys) list(ctx context.Context) (map[string]entry, error) {
	entries, _, err := k.read(ctx)
	return entries, err
}

func (k *keys) read(ctx context.Context) (map[string]entry, *corev1.ConfigMap, error) {
	stored := &corev1.ConfigMap{}
	if err := k.live.Get(ctx, k.name, stored); client.IgnoreNotFound(err) != nil {
		return nil, nil, fmt.Errorf("reading the keys: %w", err)
	}
	entries := map[string]entry{}
	for pool, text := range stored.Data {
		var e entry
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			log.FromContext(ctx).Error(err, "The key of a pool is not readable, and its range is not returned: correct it in the ConfigMap, or restore that from a backup", "pool", pool, "ConfigMap", k.name)
			continue
		}
		entries[pool] = e
	}
	return entries, stored, nil
}

// change replaces the entry of a pool if it is as expected, and returns errStale otherwise. A nil entry
// means that there is none.
func (k *keys) change(ctx context.Context, pool string, expected, next *entry) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		entries, stored, err := k.read(ctx)
		if err != nil {
			return err
		}
		if present, ok := entries[pool]; ok != (expected != nil) || ok && present != *expected {
			return errStale
		}
		if next == nil {
			delete(stored.Data, pool)
			return k.client.Update(ctx, stored)
		}
		text, err := json.Marshal(next)
		if err != nil {
			return err
		}
		if stored.Data == nil {
			stored.Data = map[string]string{}
		}
		stored.Data[pool] = string(text)
		if stored.ResourceVersion != "" {
			return k.client.Update(ctx, stored)
		}
		stored.ObjectMeta = metav1.ObjectMeta{Namespace: k.name.Namespace, Name: k.name.Name}
		err = k.client.Create(ctx, stored)
		if apierrors.IsAlreadyExists(err) {
			return apierrors.NewConflict(corev1.Resource("configmaps"), k.name.Name, err)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("writing the key of pool %s: %w", pool, err)
	}
	return nil
}
