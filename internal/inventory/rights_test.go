package inventory

import (
	"testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

func TestRightIsAskedOnlyIfNothingElseIsMissing(t *testing.T) {
	c := New(Options{Ledger: emptyLedger()})
	c.SetProject("red", "red")
	c.SetPool(ipam.Pool{Key: ipam.PoolNamed("free")})
	c.SetPool(ipam.Pool{Key: ipam.PoolNamed("mine"), Project: "red"})
	c.SetPool(ipam.Pool{Key: ipam.PoolNamed("owned"), Project: "blue", Spec: ipam.Revision{UID: "present"}})
	c.SetPool(ipam.Pool{Key: ipam.PoolNamed("hidden"), Project: "blue", Visibility: ipam.VisibilityConsumer})
	c.SetPool(ipam.Pool{Key: ipam.LocalPoolNamed("red", "own")})
	claim := ipam.Name{Namespace: "red", Name: "c"}
	child := ipam.LocalPoolNamed("red", "child")
	for name, test := range map[string]struct {
		request      ipam.Request
		lacks, grant bool
	}{
		"a pool that is free to name":       {ipam.Request{Claim: claim, Pool: ipam.PoolNamed("free")}, false, false},
		"a pool of another project":         {ipam.Request{Claim: claim, Pool: ipam.PoolNamed("owned")}, true, true},
		"the same, with the right":          {ipam.Request{Claim: claim, Pool: ipam.PoolNamed("owned"), Grant: &ipam.Grant{}}, false, false},
		"the same, with that to another":    {ipam.Request{Claim: claim, Pool: ipam.PoolNamed("owned"), Grant: &ipam.Grant{PoolUID: "former"}}, true, true},
		"a pool of the same project":        {ipam.Request{Claim: claim, Pool: ipam.PoolNamed("mine")}, false, false},
		"a pool that is not visible":        {ipam.Request{Claim: claim, Pool: ipam.PoolNamed("hidden")}, true, false},
		"a pool that does not exist":        {ipam.Request{Claim: claim, Pool: ipam.PoolNamed("none")}, true, false},
		"a pool of the namespace's own":     {ipam.Request{Claim: claim, Pool: ipam.LocalPoolNamed("red", "own")}, false, false},
		"a class":                           {ipam.Request{Claim: claim, Class: "gold"}, false, false},
		"a parent, of a namespace's pool":   {ipam.Request{Child: child, Pool: ipam.PoolNamed("free")}, true, true},
		"a parent, of a cluster-wide pool":  {ipam.Request{Child: ipam.PoolNamed("child"), Pool: ipam.PoolNamed("owned")}, true, true},
		"a namespace that is not known yet": {ipam.Request{Claim: ipam.Name{Namespace: "new", Name: "c"}, Pool: ipam.PoolNamed("free")}, true, false},
	} {
		pool, grant := c.MayBeGranted(test.request)
		if lacks := c.LacksRight(test.request); lacks != test.lacks || grant != test.grant || grant && pool.Key != test.request.Pool {
			t.Errorf("%s: lacks a right %v, may be granted it %v; want %v, %v", name, lacks, grant, test.lacks, test.grant)
		}
	}
}

func TestForbiddenPoolLooksMissing(t *testing.T) {
	for _, c := range []struct {
		request ipam.Request
		want    string
	}{
		{ipam.Request{Claim: ipam.Name{Namespace: "red", Name: "c"}, Pool: ipam.PoolNamed("x")},
			`there is no IPPool "x" that this namespace may use: create it, name another one, or ask for the right to use it and then create this object again`},
		{ipam.Request{Child: ipam.PoolNamed("c"), Pool: ipam.PoolNamed("x")},
			`there is no IPPool "x" that this pool may use: create it, name another one, or ask for the right to use it and then create this object again`},
		{ipam.Request{Claim: ipam.Name{Namespace: "red", Name: "c"}, Pool: ipam.LocalPoolNamed("red", "x")},
			`there is no LocalIPPool "x": create it, or name another one`},
	} {
		if got := noPoolError(c.request, v1alpha1.ReasonPoolNotFound, "one").Message; got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
