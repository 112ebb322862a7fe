package register

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// listInCluster lists the pools of the in-cluster provider's kinds, with an error of the API server if there is one.
func listInCluster(failed error, pools ...client.Object) (*Objects, *lister) {
	scheme := runtime.NewScheme()
	utilruntime.Must(incluster.AddToScheme(scheme))
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(pools...).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if failed != nil {
				return failed
			}
			return c.List(ctx, list, opts...)
		},
	}).Build()
	objects, l := &Objects{}, &lister{reader: reader}
	for _, listing := range InClusterPools(objects.addInCluster) {
		l.listOptional(context.Background(), listing)
	}
	return objects, l
}

func TestServedInClusterPoolsAreListed(t *testing.T) {
	global := &incluster.GlobalInClusterIPPool{}
	global.Name = "global"
	objects, l := listInCluster(nil,
		build.InClusterPool("team", "of-the-provider", 24, "10.0.0.10"), build.Served(global, v1alpha1.ReasonReady),
		build.Served(build.InClusterPool("team", "leased", 24, "10.0.0.11"), v1alpha1.ReasonProviderRunning))
	var names []string
	for _, pool := range objects.InClusterPools {
		names = append(names, fmt.Sprint(pool.PoolKind(), " ", pool.GetName()))
	}
	if want := []string{"InClusterIPPool leased", "GlobalInClusterIPPool global"}; !slices.Equal(names, want) || l.err != nil || len(l.unread) > 0 {
		t.Errorf("%q are listed, want %q: %v, %v", names, want, l.err, l.unread)
	}
}

func TestInClusterPoolsAreOptional(t *testing.T) {
	resource := schema.GroupResource{Group: incluster.GroupVersion.Group, Resource: inClusterPools}
	for name, test := range map[string]struct {
		err      error
		isFailed bool
		unread   int
	}{
		"without the CRDs":  {err: &meta.NoKindMatchError{}},
		"without the right": {err: apierrors.NewForbidden(resource, "", errors.New("no")), unread: 2},
		"after an error":    {err: errors.New("the connection is lost"), isFailed: true},
	} {
		if _, l := listInCluster(test.err); (l.err != nil) != test.isFailed || len(l.unread) != test.unread {
			t.Errorf("%s: the error %v and %d unread, want %d", name, l.err, len(l.unread), test.unread)
		}
	}
}

// TestInClusterPoolHoldsItsRanges has a pool of 10.0.0.10-10.0.0.13 and 10.0.0.20-10.0.0.27, without
// 10.0.0.12. It has two own records, which leave out 10.0.0.20, which another pool has.
func TestInClusterPoolHoldsItsRanges(t *testing.T) {
	pool := build.Served(build.InClusterPool("team", "nodes", 24, "10.0.0.10-10.0.0.13", "10.0.0.25/29", "10.0.0.20-10.0.0.23"), v1alpha1.ReasonReady)
	pool.Spec.ExcludedAddresses = []string{"10.0.0.12"}
	key, s := convert.KeyOf(pool), &store{}
	domain := ipam.LocalDomainNamed("team", "default", ipam.IPv4)
	for _, blocks := range [][]string{{"10.0.0.10/31", "10.0.0.13/32"}, {"10.0.0.21/32", "10.0.0.22/31", "10.0.0.24/29"}} {
		s.own(domain, "nodes", blocks...)
		ref := &s.records[len(s.records)-1].Spec.ClaimRef
		ref.APIGroup, ref.Kind, ref.Namespace = incluster.GroupVersion.Group, string(key.Kind), "team"
	}
	s.hold(key, netip.MustParsePrefix("10.0.0.11/32"), ipam.PurposeClaim, convert.HolderOfAddressClaim(ipam.Name{Namespace: "team", Name: "vm"}))
	objects := Objects{InClusterPools: []v1alpha1.Pool{pool}}
	for name, scope := range map[string]Scope{"all": nil, "of the pool": OfPool("nodes"), "at the address": At(netip.MustParseAddr("10.0.0.11")), "as the status counts nothing": NoneOfKnown()} {
		shown := s.read(scope, objects).Pool(key)
		usage, _ := shown.Usage()
		if usage.Total != space.CountOf64(15) || usage.Free != space.CountOf64(13) || usage.Held != space.CountOf64(1) || usage.Withheld != space.CountOf64(1) {
			t.Errorf("%s: %+v", name, usage)
		}
		withheld := shown.WithheldIn(pool24)
		if len(withheld) != 1 || withheld[0].From.String() != "10.0.0.20" || withheld[0].Reason != "not recorded for the pool yet" {
			t.Errorf("%s: withheld: %+v", name, withheld)
		}
		if shown.Domain == nil || shown.Domain.Key != domain {
			t.Errorf("%s: it lies in the domain %+v", name, shown.Domain)
		}
	}
}

var pool24 = netip.MustParsePrefix("10.0.0.0/24")

func TestSelectorMissesInClusterPools(t *testing.T) {
	pool := build.Served(build.InClusterPool("team", "nodes", 24, "10.0.0.10"), v1alpha1.ReasonReady)
	r := Build(&Objects{InClusterPools: []v1alpha1.Pool{pool}})
	request := ipam.Request{Claim: ipam.Name{Namespace: "team", Name: "c"}, Selects: func(map[string]string) bool { return true }, Length: 32}
	if pools := r.MayServe(request); len(pools) > 0 {
		t.Errorf("an IPClaim that selects all pools is served from %s", pools[0].Key)
	}
	request.Selects, request.Pool = nil, convert.KeyOf(pool)
	if pools := r.MayServe(request); len(pools) != 1 {
		t.Errorf("an IPAddressClaim that names the pool is served from %d pools", len(pools))
	}
}
