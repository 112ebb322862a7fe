// Package hub gets the ranges of a provisioner from another cluster, the hub, that runs Cadastre: each
// range is the block of an IPClaim there.
package hub

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/provisioner"
)

// ParameterClass is the parameter of a class that names the IPClass of the hub. Default: the default class of
// the hub.
const ParameterClass = "hubClass"

// AnnotationClusterUID on a claim in the hub is the UID of the kube-system Namespace of the cluster. A claim
// with another one is left alone.
const AnnotationClusterUID = "ipam.cadastre.dev/hub-cluster-uid"

// Options holds the settings of New.
type Options struct {
	// Namespace of the claims in the hub.
	Namespace string
	// Cluster is the name by which people know the cluster: a valid value of a label. Empty: its UID.
	Cluster string
}

// claims implements provisioner.Provisioner.
type claims struct {
	hub     func() (client.Client, error)
	options Options
}

// NewClient returns a client for the claims of a hub. It makes no request, and its account needs no right to
// discover the API.
func NewClient(cfg *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1alpha1.GroupVersion.WithKind("IPClaim"), meta.RESTScopeNamespace)
	return client.New(cfg, client.Options{Scheme: scheme, Mapper: mapper})
}

// New returns a provisioner that claims ranges in the hub. It calls hub before each use, which returns a client
// as NewClient does, such as one with credentials that have been renewed.
func New(hub func() (client.Client, error), o Options) provisioner.Provisioner {
	return &claims{hub, o}
}

// Provision implements provisioner.Provisioner. The name of the claim is the key.
func (c *claims) Provision(ctx context.Context, r provisioner.Request) (netip.Prefix, error) {
	hub, err := c.hub()
	if err != nil {
		return netip.Prefix{}, err
	}
	wanted := c.newClaim(r)
	claim := wanted.DeepCopy()
	err = hub.Create(ctx, claim)
	if apierrors.IsAlreadyExists(err) {
		err = hub.Get(ctx, client.ObjectKeyFromObject(claim), claim)
	}
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("claiming a /%d in the hub: %w", r.PrefixLength, err)
	}
	switch {
	case claim.Annotations[AnnotationClusterUID] != r.Cluster:
		return netip.Prefix{}, foreign(claim)
	case !claim.DeletionTimestamp.IsZero():
		return netip.Prefix{}, fmt.Errorf("the IPClaim %s/%s of the hub is being deleted: wait until it is gone", claim.Namespace, claim.Name)
	case claim.Status.AllocatedCIDR != "":
		return netip.ParsePrefix(claim.Status.AllocatedCIDR)
	case claim.Spec.CIDR != wanted.Spec.CIDR || wanted.Spec.ClassName != "" && claim.Spec.ClassName != wanted.Spec.ClassName:
		// It is from a backup in which it waited, or the class of the cluster has another class of the hub now.
		return netip.Prefix{}, errors.Join(fmt.Errorf("the IPClaim %s/%s of the hub is made again", claim.Namespace, claim.Name), remove(ctx, hub, claim))
	}
	message := "it has no condition yet"
	if ready := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		message = ready.Message
	}
	return netip.Prefix{}, fmt.Errorf("the IPClaim %s/%s waits in the hub: %s", claim.Namespace, claim.Name, message)
}

func (c *claims) newClaim(r provisioner.Request) *v1alpha1.IPClaim {
	cluster := c.options.Cluster
	if cluster == "" {
		cluster = r.Cluster
	}
	claim := &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: c.options.Namespace, Name: r.Key,
		Labels: map[string]string{v1alpha1.LabelHubCluster: cluster}, Annotations: map[string]string{AnnotationClusterUID: r.Cluster},
	}}
	if len(r.Class) <= 63 {
		claim.Labels[v1alpha1.LabelHubClass] = r.Class
	}
	claim.Spec.ClassName, claim.Spec.IPFamily = r.Parameters[ParameterClass], r.Family
	if r.Range.IsValid() {
		claim.Spec.CIDR = r.Range.String()
	} else {
		claim.Spec.PrefixLength = new(int32(r.PrefixLength)) //nolint:gosec // 0 to 128
	}
	return claim
}

func foreign(claim *v1alpha1.IPClaim) error {
	return fmt.Errorf("the IPClaim %s/%s of the hub is not of this cluster (%s): delete it, or let the clusters use different namespaces", claim.Namespace, claim.Name, AnnotationClusterUID)
}

// Release implements provisioner.Provisioner. It returns when the claim is gone.
func (c *claims) Release(ctx context.Context, key string) error {
	hub, err := c.hub()
	if err != nil {
		return err
	}
	claim := &v1alpha1.IPClaim{}
	if err := hub.Get(ctx, client.ObjectKey{Namespace: c.options.Namespace, Name: key}, claim); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !strings.HasPrefix(key, claim.Annotations[AnnotationClusterUID]+".") {
		return foreign(claim)
	}
	return remove(ctx, hub, claim)
}

// goneWithin bounds the wait until a claim is gone, which takes a few writes of the operator.
const goneWithin = 5 * time.Second

// remove deletes a claim, and waits until it is gone.
func remove(ctx context.Context, hub client.Client, claim *v1alpha1.IPClaim) error {
	if err := hub.Delete(ctx, claim, client.Preconditions{UID: &claim.UID}); err != nil {
		return client.IgnoreNotFound(err)
	}
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, goneWithin, true, func(ctx context.Context) (bool, error) {
		err := hub.Get(ctx, client.ObjectKeyFromObject(claim), &v1alpha1.IPClaim{})
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	if err != nil {
		return fmt.Errorf("the IPClaim %s/%s of the hub is not gone yet: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}
