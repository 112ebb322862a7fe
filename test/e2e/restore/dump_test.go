package restore

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
)

// dump holds the objects of a cluster by kind, as a backup has them: no IPAllocations, and of each
// object the fields that its users see and set.
type dump map[string][]*unstructured.Unstructured

// The kinds in a dump, those first that others refer to, and parents before their
// children.
var (
	classes       = schema.GroupVersionKind{Group: v1alpha1.GroupVersion.Group, Version: "v1alpha1", Kind: "IPClass"}
	pools         = schema.GroupVersionKind{Group: v1alpha1.GroupVersion.Group, Version: "v1alpha1", Kind: "IPPool"}
	locals        = schema.GroupVersionKind{Group: v1alpha1.GroupVersion.Group, Version: "v1alpha1", Kind: "LocalIPPool"}
	claims        = schema.GroupVersionKind{Group: v1alpha1.GroupVersion.Group, Version: "v1alpha1", Kind: "IPClaim"}
	addresses     = schema.GroupVersionKind{Group: ipamv1.GroupVersion.Group, Version: "v1beta2", Kind: "IPAddress"}
	addressClaims = schema.GroupVersionKind{Group: ipamv1.GroupVersion.Group, Version: "v1beta2", Kind: "IPAddressClaim"}
	clusters      = clusterv1.GroupVersion.WithKind("Cluster")
)

func (w *world) dump() dump {
	w.Helper()
	all := dump{}
	for _, kind := range []schema.GroupVersionKind{classes, pools, locals, claims, addresses, addressClaims, clusters} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		w.Expect(w.List(w.Context(), list)).To(Succeed())
		for _, item := range list.Items {
			all[kind.Kind] = append(all[kind.Kind], stripped(&item))
		}
	}
	return all
}

// stripped returns an object without the fields that its cluster added.
func stripped(obj *unstructured.Unstructured) *unstructured.Unstructured {
	bare := obj.DeepCopy()
	unstructured.RemoveNestedField(bare.Object, "status")
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "ownerReferences"} {
		unstructured.RemoveNestedField(bare.Object, "metadata", field)
	}
	return bare
}

// objectsOf returns the objects of the kinds, in this order; children are after all roots.
func (d dump) objectsOf(kinds ...schema.GroupVersionKind) []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for _, kind := range kinds {
		var children []*unstructured.Unstructured
		for _, obj := range d[kind.Kind] {
			if _, child, _ := unstructured.NestedMap(obj.Object, "spec", "parentRef"); child {
				children = append(children, obj)
				continue
			}
			all = append(all, obj)
		}
		all = append(all, children...)
	}
	return all
}

// inUse makes a cluster that has been used: classes over several pools, child pools and a
// namespace's own with claims in them, addresses by pool and by class, Clusters with networks, and
// holes left by deleted claims and Clusters. There is room for all of it for every seed: 24 claims of
// a /28 in each pool, and the newcomers.
func (w *world) inUse(random *rand.Rand) {
	w.Helper()
	platform := []client.Object{
		build.Class("gold").Length(29).Obj(), build.Class("machines").Obj(), build.Class(networks).Length(29).Obj(),
		build.Pool("gold-a").CIDR("10.0.0.0/25").Classes("gold").Obj(),
		build.Pool("gold-b").CIDR("10.1.0.0/23").Classes("gold").Obj(),
		build.Pool("machines").CIDR("10.2.0.0/24").Network(24, "10.2.0.1").Classes("machines").Obj(),
		build.Pool("parent").CIDR("10.3.0.0/20").Obj(),
		build.Pool(networks).CIDR("10.4.0.0/22").Classes(networks).Obj(),
	}
	w.Created(platform...)
	for _, obj := range platform[3:] {
		w.Ready(obj.(v1alpha1.Pool))
	}
	w.Created(build.Claim(team, "before-the-children").Pool("parent").Length(24).Obj())
	child, own := build.Pool("child").Child("parent", 23).Obj(), build.Pool("own").Child("parent", 23).In(team)
	w.Pools(child, own)
	var deletedObjects []client.Object
	for i := range 24 {
		name, bits := fmt.Sprintf("c%02d", i), int32(28+random.IntN(5))
		made := []client.Object{
			build.Claim(team, "gold-"+name).Class("gold").Length(bits).Obj(),
			build.Claim(team, "parent-"+name).Pool("parent").Length(bits).Obj(),
			build.Claim(team, "child-"+name).Pool("child").Length(bits).Obj(),
			build.Claim(team, "own-"+name).LocalPool("own").Length(bits).Obj(),
			build.AddressClaim(team, "pool-"+name).Pool("machines").Obj(),
			build.AddressClaim(team, "class-"+name).Class("machines").Obj(),
		}
		w.Created(made...)
		if random.IntN(3) == 0 {
			deletedObjects = append(deletedObjects, made...)
		}
	}
	for i := range 6 {
		w.Created(asking(fmt.Sprintf("k%d", i)))
	}
	w.Created(build.Claim(team, "gold-b").Class("gold").CIDR("10.1.1.192/27").Obj())
	deletedObjects = append(deletedObjects, &v1alpha1.IPClaim{ObjectMeta: build.Claim(team, "before-the-children").Obj().ObjectMeta})
	w.agrees()
	for _, obj := range deletedObjects {
		w.Expect(w.Delete(w.Context(), obj)).To(Succeed())
	}
	for _, name := range []string{"k1", "k4"} {
		w.Expect(w.Delete(w.Context(), build.Cluster(team, name))).To(Succeed())
		w.Expect(w.DeleteAllOf(w.Context(), &v1alpha1.IPClaim{}, client.InNamespace(team), client.MatchingLabels{clusterv1.ClusterNameLabel: name})).To(Succeed())
	}
	w.agrees()
}

// empty deletes everything, Clusters and claims first.
func (w *world) empty() {
	w.Helper()
	ctx := w.Context()
	for _, claim := range []client.Object{&clusterv1.Cluster{}, &v1alpha1.IPClaim{}, &ipamv1.IPAddressClaim{}, &ipamv1.IPAddress{}} {
		w.Expect(w.DeleteAllOf(ctx, claim, client.InNamespace(team))).To(Succeed())
	}
	w.Eventually(func(g Gomega) {
		s, err := w.stored(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		for _, p := range append(asPools(s.locals.Items), asPools(s.pools.Items)...) {
			_ = w.Delete(ctx, p) // refused as long as it has children
		}
		g.Expect(len(s.clusters.Items) + len(s.claims.Items) + len(s.records.Items) + len(s.pools.Items) + len(s.locals.Items) + len(s.addressClaims.Items) + len(s.addresses.Items)).To(BeZero())
	}).Should(Succeed())
	w.Expect(w.DeleteAllOf(ctx, &v1alpha1.IPClass{})).To(Succeed())
}

// TestRestoreOfDumpWithoutAllocations restores a dump into an empty cluster, in several orders, while new
// claims arrive.
func TestRestoreOfDumpWithoutAllocations(t *testing.T) {
	w := start(t, cluster.Options{Managers: 2})
	seed := newSeed(t)
	w.inUse(rand.New(rand.NewPCG(seed, 0)))
	saved := w.dump()
	paused := func(obj *unstructured.Unstructured) *unstructured.Unstructured {
		obj = obj.DeepCopy()
		w.Expect(unstructured.SetNestedField(obj.Object, "true", "metadata", "annotations", v1alpha1.AnnotationPaused)).To(Succeed())
		return obj
	}
	unpause := func(r *restoration) {
		for _, pool := range saved.objectsOf(pools, locals) {
			pause := build.Merge(`{"metadata":{"annotations":{"` + v1alpha1.AnnotationPaused + `":null}}}`)
			r.w.Expect(r.w.Patch(r.w.Context(), pool.DeepCopy(), pause)).To(Succeed())
		}
	}
	for _, c := range []struct {
		name    string
		order   func(*rand.Rand) []*unstructured.Unstructured
		as      func(*unstructured.Unstructured) *unstructured.Unstructured
		finish  func(*restoration)
		without bool // conflicts
		large   bool // only at full size
	}{
		{
			name:    "claims and addresses first, pools last, children before their parents",
			without: true, large: true,
			order: func(*rand.Rand) []*unstructured.Unstructured {
				return append(saved.objectsOf(classes, addresses, addressClaims, claims, clusters), reversed(saved.objectsOf(pools, locals))...)
			},
		},
		{
			name: "pools first and paused, until everything is back", without: true, finish: unpause,
			as: func(obj *unstructured.Unstructured) *unstructured.Unstructured {
				if kind := obj.GetKind(); kind == pools.Kind || kind == locals.Kind {
					return paused(obj)
				}
				return obj
			},
			order: func(*rand.Rand) []*unstructured.Unstructured {
				return saved.objectsOf(classes, pools, locals, clusters, claims, addresses, addressClaims)
			},
		},
		{
			name: "pools first", large: true,
			order: func(*rand.Rand) []*unstructured.Unstructured {
				return saved.objectsOf(classes, pools, locals, claims, addresses, addressClaims, clusters)
			},
		},
		{
			name: "shuffled",
			order: func(random *rand.Rand) []*unstructured.Unstructured {
				all := saved.objectsOf(classes, pools, locals, claims, addresses, addressClaims, clusters)
				random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
				return all
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.large && testing.Short() {
				t.Skip("only at full size")
			}
			w := w.forTest(t)
			w.empty()
			r := &restoration{w: w, conflicts: map[string]string{}}
			end := r.newcomers(4)
			for _, obj := range c.order(rand.New(rand.NewPCG(seed, 1))) {
				if !c.without && obj.GetKind() == claims.Kind && obj.GetLabels()[clusterv1.ClusterNameLabel] == "k0" {
					continue // the controller makes it
				}
				if c.as != nil {
					obj = c.as(obj)
				}
				r.create(obj.DeepCopy())
			}
			if c.finish != nil {
				c.finish(r)
			}
			end()
			r.judge(saved)
			t.Logf("%d claims came back, with %d newcomers: %d conflicts", len(saved.objectsOf(claims, addressClaims)), r.new, len(r.conflicts))
			for name, why := range r.conflicts {
				t.Logf("such as %s: %s", name, why)
				break
			}
			if c.without {
				w.Expect(r.conflicts).To(BeEmpty())
			}
		})
	}
}

func reversed(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	back := slices.Clone(objects)
	slices.Reverse(back)
	return back
}
