package story

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

const (
	// System is the operator's namespace.
	System = "system"
	// Team is the namespace of the claims.
	Team = "team"
)

// Plane represents a control plane for stories.
type Plane struct {
	config *rest.Config
	admin  client.WithWatch
	kinds  []client.Object
}

// Kubeconfig is the environment variable that names the kubeconfig of a control plane which
// runs already, with all CRDs. Stories use it in place of a new one, one test at a time, so
// that a test which is run again and again takes as long as its stories alone.
const Kubeconfig = "STORY_KUBECONFIG"

// Start starts a control plane, which stops when the test ends. Each story is a subtest,
// and begins with Begin. No managers run.
func Start(t *testing.T, options cluster.Options) *Plane {
	t.Helper()
	p := &Plane{}
	if running := os.Getenv(Kubeconfig); running != "" {
		p.attach(t, running)
	} else {
		w := suite.Start(t, options)
		suite.Must(t, w.AwaitKinds(t.Context()))
		p.config, p.admin = w.Config(), w.WithWatch
	}
	for _, name := range []string{System, Team} {
		suite.Must(t, client.IgnoreAlreadyExists(p.admin.Create(t.Context(), build.Namespace(name))))
	}
	suite.Must(t, p.entitle(t.Context()))
	p.kinds = []client.Object{&v1alpha1.IPClaim{}, &v1alpha1.IPPool{}, &v1alpha1.LocalIPPool{}, &v1alpha1.IPClass{}, &v1alpha1.IPAllocation{}}
	if options.ClusterAPICRDs {
		p.kinds = append(p.kinds, &ipamv1.IPAddressClaim{}, &ipamv1.IPAddress{}, &clusterv1.Cluster{})
	}
	suite.Must(t, p.wipe(t.Context())) // of the objects that a test that was cut off has left there
	return p
}

// attach connects to a control plane that runs already.
func (p *Plane) attach(t *testing.T, kubeconfig string) {
	t.Helper()
	log.SetLogger(logr.Discard()) // warnings of the API server
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	suite.Must(t, err)
	config.QPS = -1
	p.config = config
	p.admin, err = cluster.NewClient(config)
	suite.Must(t, err)
}

// Config returns the administrator's configuration, without a rate limit.
func (p *Plane) Config() *rest.Config { return rest.CopyConfig(p.config) }

// wipe deletes everything that a story has made, whatever finalizers it has.
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
