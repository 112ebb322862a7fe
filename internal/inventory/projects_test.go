package inventory

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

func TestNamespaceIsProjectOfItsNameUnlessLabelIsUsed(t *testing.T) {
	c := New(Options{Ledger: emptyLedger(), PlatformProject: "the-platform"})
	var notifications []string
	c.Listen(func(e Change) { notifications = append(notifications, e.Namespace) })
	expect := func(when, namespace, project string, changed ...string) {
		t.Helper()
		tenant, ok := c.Tenant(namespace)
		if !ok || tenant.Project != project {
			t.Errorf("%s: namespace %s is of project %q (known: %t), want %q", when, namespace, tenant.Project, ok, project)
		}
		if slices.Sort(notifications); !slices.Equal(notifications, changed) {
			t.Errorf("%s: notified of %v, want %v", when, notifications, changed)
		}
		notifications = nil
	}
	c.SetProject("red", "")
	expect("without a label anywhere", "red", "red")
	c.SetProject("team", "red")
	expect("when another namespace has the label", "red", "namespace/red", "red")
	expect("when another namespace has the label", "team", "red")
	c.SetProject("team-2", "red")
	c.DropNamespace("team")
	expect("while one namespace of two has the label still", "red", "namespace/red")
	c.SetProject("team-2", "blue")
	expect("when the last label is another one", "red", "red", "red", "team-2")
	c.SetProject("team-2", "red")
	expect("when it is set again", "red", "namespace/red", "red", "team-2")
	c.DropNamespace("team-2")
	expect("when the last namespace of the label is gone", "red", "red", "red")
	c.SetProject("red", "red")
	expect("when it has the label of the namespace's name", "red", "red")
	c.SetProject("late", "red")
	expect("and another one has it too", "red", "red")
	c.SetProject("late", "red")
	expect("when nothing changes", "late", "red")
	if len(c.namespaces.labelCounts) != 1 || c.namespaces.labelCounts["red"] != 2 {
		t.Errorf("labels are counted as %v", c.namespaces.labelCounts)
	}
}

func TestNamespaceNameDoesNotJoinProject(t *testing.T) {
	c := New(Options{Ledger: emptyLedger(), PlatformProject: "the-platform"})
	c.SetProject("ours", "red")
	c.SetProject("red", "")
	c.SetProject("operations", "the-platform")
	c.SetProject("the-platform", "")
	for _, namespace := range []string{"red", "the-platform"} {
		tenant, _ := c.Tenant(namespace)
		if tenant.Platform || tenant.MayUse(ipam.VisibilityConsumer, namespace) {
			t.Errorf("namespace %s is taken for a part of the project: %+v", namespace, tenant)
		}
	}
	if tenant, _ := c.Tenant("operations"); !tenant.Platform {
		t.Error("the platform's own namespace is not of its project")
	}
	c.SetProject("operations", "")
	if tenant, _ := c.Tenant("the-platform"); tenant.Platform {
		t.Error("a namespace without label is the platform, by its name alone")
	}
}

func TestKeepingPrefersClassOverPool(t *testing.T) {
	a := newUnsyncedCatalog()
	a.SetClass(ClassEntry{Class: ipam.Class{Name: "gold", Retention: 1, ReuseDelay: 2}})
	a.SetPool(ipam.Pool{Key: ipam.PoolNamed("p"), Retention: 3, ReuseDelay: 4})
	for name, c := range map[string]struct {
		class, pool string
		want        ipam.Keeping
	}{
		"both":                      {"gold", "p", ipam.Keeping{Retention: 1, ReuseDelay: 2}},
		"the pool alone":            {"", "p", ipam.Keeping{Retention: 3, ReuseDelay: 4}},
		"a class that is not there": {"none", "p", ipam.Keeping{Retention: 3, ReuseDelay: 4}},
		"a pool that is not there":  {"gold", "none", ipam.Keeping{Retention: 1, ReuseDelay: 2}},
		"neither of them exists":    {"", "none", ipam.Keeping{}},
	} {
		if got := a.Keeping(ipam.Record{Class: c.class, Pool: ipam.PoolNamed(c.pool)}); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

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

// twoTenants returns a catalog in which two namespaces have a pool of one name, class and label
// each, beside the platform's.
func twoTenants() *Catalog {
	c := New(Options{Ledger: emptyLedger()})
	for _, key := range []ipam.PoolKey{ipam.PoolNamed("p"), ipam.LocalPoolNamed("red", "p"), ipam.LocalPoolNamed("blue", "p")} {
		c.SetPool(ipam.Pool{Key: key, Classes: []string{"gold", "silver"}, Labels: map[string]string{"of": "all"}})
	}
	c.SetProject("red", "red")
	c.SetProject("blue", "blue")
	return c
}

func matchAll(map[string]string) bool { return true }

func keysOf(pools []ipam.Pool) []ipam.PoolKey {
	keys := []ipam.PoolKey{}
	for _, p := range sortedByName(pools) {
		keys = append(keys, p.Key)
	}
	return keys
}

func TestCatalogShowsNamespaceItsOwnPools(t *testing.T) {
	c := twoTenants()
	platform, red := ipam.PoolNamed("p"), ipam.LocalPoolNamed("red", "p")
	backing := func(from, class string) []ipam.PoolKey {
		pools, _ := c.PoolsOf(from, ipam.Class{Name: class, LocalPools: true})
		return keysOf(pools)
	}
	for from, want := range map[string][]ipam.PoolKey{"red": {red, platform}, "": {platform}, "green": {platform}} {
		if got := backing(from, "gold"); !slices.Equal(got, want) {
			t.Errorf("from %q, pools of the class: got %v, want %v", from, got, want)
		}
		if got := keysOf(c.PoolsWhere(from, matchAll)); !slices.Equal(got, want) {
			t.Errorf("from %q, pools by label: got %v, want %v", from, got, want)
		}
	}
	c.SetPool(ipam.Pool{Key: red, Classes: []string{"silver"}})
	c.DropPool(platform)
	if got := backing("red", "gold"); len(got) > 0 {
		t.Errorf("the class is backed by %v still", got)
	}
	if got := backing("red", "silver"); !slices.Equal(got, []ipam.PoolKey{red}) {
		t.Errorf("the other class is backed by %v, want %v", got, red)
	}
	if got := c.PoolsNaming("silver"); len(got) != 2 {
		t.Errorf("the other class is named by %v, want two pools", got)
	}
}

func TestLocalPoolsBackOnlyClassesThatAllowThem(t *testing.T) {
	c := newUnsyncedCatalog()
	c.SetProject("red", "red")
	own := newPoolWithholding("own")
	own.Key, own.Classes = ipam.LocalPoolNamed("red", "own"), []string{"gold"}
	c.SetPool(own)
	others := own
	others.Key = ipam.LocalPoolNamed("blue", "own")
	c.SetPool(others)
	request := ipam.Request{Claim: ipam.Name{Namespace: "red", Name: "x"}, Class: "gold", Length: 28}
	for _, step := range []struct {
		allowed bool
		wants   []ipam.PoolKey
		reason  ipam.Verdict
	}{{false, nil, ipam.LocalPoolNotAllowed}, {true, []ipam.PoolKey{own.Key}, ipam.NotReady}, {false, nil, ipam.LocalPoolNotAllowed}} {
		class := ipam.Class{Name: "gold", Family: ipam.IPv4, Length: 28, Lengths: ipam.Lengths{Max: 32}, LocalPools: step.allowed}
		c.SetClass(ClassEntry{Class: class})
		if got := c.Wants(request).Pools; !slices.Equal(got, step.wants) {
			t.Errorf("allowed %t: a claim waits for %v, want %v", step.allowed, got, step.wants)
		}
		res, err := c.Resolve(request)
		if err == nil || len(res.PassedOver) != 1 || res.PassedOver[0].Pool != own.Key || res.PassedOver[0].Verdict() != step.reason {
			t.Errorf("allowed %t: got %v and %v, want %s of the namespace's own pool alone", step.allowed, res.PassedOver, err, step.reason)
		}
	}
}

func TestHolderIsNamedOnlyToSameProject(t *testing.T) {
	a := twoTenants()
	a.platformProject = "the-platform"
	a.SetProject("platform-a", "the-platform")
	a.SetProject("platform-b", "the-platform")
	block := netip.MustParsePrefix("10.0.0.0/24")
	for _, c := range []struct {
		from   string
		holder ipam.Holder
		tells  bool
	}{
		{"red", convert.HolderOfPool(ipam.LocalPoolNamed("red", "p")), true},
		{"red", convert.HolderOfPool(ipam.LocalPoolNamed("blue", "p")), false},
		{"red", convert.HolderOfPool(ipam.PoolNamed("p")), false},
		{"red", convert.HolderOfClaim(ipam.Name{Namespace: "blue", Name: "c"}), false},
		{"red", convert.HolderOfClaim(ipam.Name{Namespace: "platform-a", Name: "c"}), false},
		{"red", convert.HolderOfAddressClaim(ipam.Name{Namespace: "platform-a", Name: "c"}), false},
		{"red", convert.HolderOfClaim(ipam.Name{Namespace: "not-seen", Name: "c"}), false},
		{"not-seen", convert.HolderOfPool(ipam.PoolNamed("p")), false},
		{"not-seen", convert.HolderOfClaim(ipam.Name{Namespace: "not-seen", Name: "c"}), false},
		{"platform-b", convert.HolderOfClaim(ipam.Name{Namespace: "platform-a", Name: "c"}), true},
		{"platform-b", convert.HolderOfClaim(ipam.Name{Namespace: "red", Name: "c"}), false},
		{"", convert.HolderOfPool(ipam.LocalPoolNamed("blue", "p")), true},
	} {
		err := &ipam.TakenError{Block: block, Pool: ipam.PoolNamed("corporate"), Holder: c.holder, Overlap: block}
		want := "10.0.0.0/24 is in use in pool corporate"
		if c.tells {
			want = err.Error()
		}
		if got := a.Redact(c.from, err).Error(); got != want {
			t.Errorf("shown to %q about the block of %s: %q, want %q", c.from, c.holder, got, want)
		}
	}
}
