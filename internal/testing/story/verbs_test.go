package story

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/must"
)

// TestOrderDoesNotDependOnSecond creates one object after another. Both have the same position if they are of the
// same second, unless their names are in the order of their creation.
func TestOrderDoesNotDependOnSecond(t *testing.T) {
	scheme := runtime.NewScheme()
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	utilruntime.Must(ipamv1.AddToScheme(scheme))
	claim := func(name string) client.Object { return build.Claim(Team, name).Obj() }
	bound := build.Claim(Team, "b").Obj()
	bound.Status.AllocatedCIDR = "10.0.0.0/32"
	for name, test := range map[string]struct {
		earlier, later client.Object
		fails          bool
	}{
		"claims in order":                    {claim("a"), claim("b"), false},
		"claims in another order":            {claim("b"), claim("a"), true},
		"claims of both kinds":               {claim("b"), build.AddressClaim(Team, "a").Obj(), true},
		"child pools":                        {build.Pool("b").Child("p", 24).Obj(), build.Pool("a").Child("p", 24).Obj(), true},
		"pools that have no parent":          {build.Pool("b").Obj(), build.Pool("a").Obj(), false},
		"classes that are the default":       {build.Class("b").Default().Obj(), build.Class("a").Default().Obj(), true},
		"classes that are not":               {build.Class("b").Obj(), build.Class("a").Default().Obj(), false},
		"a class before a claim":             {build.Class("b").Default().Obj(), claim("a"), false},
		"a claim after one that has a block": {bound, claim("a"), false},
	} {
		t.Run(name, func(t *testing.T) {
			store := fake.NewClientBuilder().WithScheme(scheme).Build()
			w := &World{t: t, plane: &Plane{admin: store}}
			must.Succeed(t, w.checkOrder(test.earlier))
			must.Succeed(t, store.Create(t.Context(), test.earlier))
			if err := w.checkOrder(test.later); (err != nil) != test.fails {
				t.Errorf("the error is %v, want one: %v", err, test.fails)
			}
			must.Succeed(t, store.Delete(t.Context(), test.earlier))
			if err := w.checkOrder(test.later); err != nil {
				t.Errorf("the earlier one is gone, and the error is %v", err)
			}
		})
	}
}
