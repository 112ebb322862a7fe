package register

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

func TestClaimWaitsAtEveryEligiblePool(t *testing.T) {
	pools := []v1alpha1.IPPool{
		*build.Pool("a").CIDR("10.0.0.0/16").Classes("small").Label("tier", "gold").Obj(),
		*build.Pool("b").CIDR("10.1.0.0/16").Classes("small").Lengths(16, 24).Label("tier", "gold").Obj(),
		*build.Pool("six").CIDR("2001:db8::/32").Classes("small").Obj(),
		*build.Pool("hidden").CIDR("10.2.0.0/16").Classes("small").With(func(s *v1alpha1.IPPoolSpec) {
			s.Visibility, s.Project = v1alpha1.VisibilityConsumer, "team"
		}).Obj(),
	}
	local := []v1alpha1.LocalIPPool{
		*build.Pool("own").CIDR("172.16.0.0/16").Classes("small").In("team"),
		*build.Pool("own").CIDR("172.16.0.0/16").Classes("small").In("other"),
	}
	local = append(local, *build.Pool("shut-out").CIDR("172.17.0.0/16").Classes("none").In("team")) // the class does not allow it
	classes := []v1alpha1.IPClass{*build.Class("small").LocalPools().Default().Obj(), *build.Class("none").Obj()}
	for name, tc := range map[string]struct {
		claim *v1alpha1.IPClaim
		want  []string
	}{
		"that it names":                       {build.Claim("team", "c").Pool("a").Length(32).Obj(), []string{"a"}},
		"that it names, though not for all":   {build.Claim("team", "c").Pool("hidden").Length(32).Obj(), []string{"hidden"}},
		"that does not exist":                 {build.Claim("team", "c").Pool("none").Length(32).Obj(), nil},
		"of its namespace, that it names":     {build.Claim("team", "c").LocalPool("own").Length(32).Obj(), []string{"team/own"}},
		"of its class":                        {build.Claim("team", "c").Class("small").Length(24).Obj(), []string{"a", "b", "team/own"}},
		"of its class that has its length":    {build.Claim("team", "c").Class("small").Length(32).Obj(), []string{"a", "team/own"}},
		"of the default class":                {build.Claim("team", "c").Length(24).Obj(), []string{"a", "b", "team/own"}},
		"of a class without pools":            {build.Claim("team", "c").Class("none").Length(24).Obj(), nil},
		"of a class that does not exist":      {build.Claim("team", "c").Class("gone").Length(24).Obj(), nil},
		"that it selects":                     {build.Claim("team", "c").Selecting("tier", "gold").Length(24).Obj(), []string{"a", "b"}},
		"that has its block":                  {build.Claim("team", "c").Class("small").CIDR("10.1.7.0/24").Obj(), []string{"b"}},
		"of a family that has no default one": {build.Claim("team", "c").With(func(s *v1alpha1.IPClaimSpec) { s.IPFamily = v1alpha1.IPv6 }).Length(64).Obj(), nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := Build(&Objects{Pools: pools, LocalPools: local, Classes: classes, Waiting: []v1alpha1.IPClaim{*tc.claim}})
			var got []string
			for _, pool := range r.Pools {
				if len(pool.Waiting) > 0 {
					got = append(got, nameOf(pool.Key))
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("pools at which it waits (-want +got):\n%s", diff)
			}
		})
	}
}

func nameOf(key ipam.PoolKey) string {
	if key.Namespace == "" {
		return key.Name
	}
	return key.Namespace + "/" + key.Name
}

func TestOldestClaimWaitsFirst(t *testing.T) {
	var waiting []v1alpha1.IPClaim
	for _, age := range []int{2, 3, 1} {
		claim := build.Claim("team", fmt.Sprint("c-", age)).Pool("a").Length(32).Obj()
		claim.CreationTimestamp = metav1.NewTime(time.Unix(int64(1000-age), 0))
		waiting = append(waiting, *claim)
	}
	r := Build(&Objects{Pools: []v1alpha1.IPPool{*build.Pool("a").CIDR("10.0.0.0/16").Obj()}, Waiting: waiting})
	var got []string
	for _, claim := range r.Pools[0].Waiting {
		got = append(got, claim.Name)
	}
	if diff := cmp.Diff([]string{"c-3", "c-2", "c-1"}, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}
