package story

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/test/framework/cluster"
	"github.com/cadastre-dev/cadastre/test/framework/suite"
)

const (
	// System is the operator's namespace.
	System = "system"
	// Team is the namespace of the claims.
	Team = "team"
)

// Plane is a control plane for stories.
type Plane struct {
	running *cluster.Cluster
	admin   client.WithWatch
	kinds   []client.Object
}

// Start starts a control plane, which stops when the test ends. Each story is a subtest,
// and begins with Begin. No managers run.
func Start(t *testing.T, options cluster.Options) *Plane {
	t.Helper()
	w := suite.Start(t, options)
	suite.Must(t, w.AwaitKinds(t.Context()))
	w.Namespace(System)
	w.Namespace(Team)
	p := &Plane{running: w.Cluster, admin: w.WithWatch}
	p.kinds = []client.Object{&v1alpha1.IPClaim{}, &v1alpha1.IPPool{}, &v1alpha1.LocalIPPool{}, &v1alpha1.IPClass{}, &v1alpha1.IPAllocation{}}
	if options.ClusterAPICRDs {
		p.kinds = append(p.kinds, &ipamv1.IPAddressClaim{}, &ipamv1.IPAddress{}, &clusterv1.Cluster{})
	}
	return p
}

// wipe takes away all that a story has made, whatever finalizers say.
func (p *Plane) wipe(ctx context.Context) error {
	var wiping errgroup.Group
	for _, kind := range p.kinds {
		gvk, err := p.admin.GroupVersionKindFor(kind)
		if err != nil {
			return err
		}
		wiping.Go(func() error {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(gvk)
			err := p.admin.List(ctx, list)
			for i := range list.Items {
				err = errors.Join(err, force(ctx, p.admin, &list.Items[i]))
			}
			return err
		})
	}
	return wiping.Wait()
}

// force removes the finalizers of an object and deletes it.
func force(ctx context.Context, k8s client.Client, obj client.Object) error {
	without := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	if err := k8s.Patch(ctx, obj, without); err != nil {
		return client.IgnoreNotFound(err)
	}
	return client.IgnoreNotFound(k8s.Delete(ctx, obj))
}
