package queue

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// TestUnreadablePoolAllocatesNothing expects that it is not queued either.
func TestUnreadablePoolAllocatesNothing(t *testing.T) {
	runScene(t, Options{}, func(s *scene) {
		s.open()
		key := ipam.PoolNamed("child")
		child := build.Versioned(build.Pool("child").Child("p", 30).Obj(), "7")
		broken := build.Versioned(build.Pool("child").Child("p", 30).CIDR("10.0.0.300/30").Obj(), "8")
		broken.Generation = 2
		for _, step := range []struct {
			what    string
			do      func()
			there   bool
			waiting int
		}{
			{"a child waits", func() { s.pools.Add(child) }, true, 1},
			{"it cannot be read", func() { s.pools.Add(broken) }, false, 0},
			{"it can", func() { s.pools.Add(build.Versioned(child, "9")) }, true, 1},
			{"it is gone", func() { s.pools.Delete(build.Versioned(child, "9")) }, false, 0},
			{"it is made again", func() { s.pools.Add(build.Versioned(child, "10")) }, true, 1},
			{"it is being deleted", func() { p := build.Versioned(child, "11"); p.DeletionTimestamp = new(metav1.Now()); s.pools.Add(p) }, true, 0},
		} {
			step.do()
			if _, there := s.catalog.Pool(key); there != step.there || s.queue.Len() != step.waiting {
				t.Errorf("%s: it is known: %t, and %d wait; want %t, %d", step.what, there, s.queue.Len(), step.there, step.waiting)
			}
		}
		open := build.Versioned(build.Pool("open").CIDR("10.2.0.0/24").Obj(), "12")
		s.pools.Add(open)
		if _, ok := s.ledger.Capacity(ipam.PoolNamed("open")); !ok {
			t.Error("the ledger does not know a pool that can be read")
		}
		s.pools.Delete(open)
		if _, ok := s.ledger.Capacity(ipam.PoolNamed("open")); ok {
			t.Error("the ledger knows a pool that is gone")
		}
	})
}

func TestChildPoolWithoutCIDRWaitsForParent(t *testing.T) {
	for name, c := range map[string]struct {
		pool      *v1alpha1.IPPool
		allocated string
		want      bool
	}{
		"a root":                                 {build.Pool("p").CIDR("10.0.0.0/24").Obj(), "", false},
		"a child without a CIDR":                 {build.Pool("p").Child("q", 24).Obj(), "", true},
		"a child that has its CIDR":              {build.Pool("p").Child("q", 24).CIDR("10.0.0.0/24").Obj(), "10.0.0.0/24", false},
		"a child made again with it":             {build.Pool("p").Child("q", 24).CIDR("10.0.0.0/24").Obj(), "", true},
		"a root of which nothing is written yet": {build.Pool("p").CIDR("10.0.0.0/24").Obj(), "10.0.0.0/24", false},
	} {
		c.pool.Status.AllocatedCIDR = c.allocated
		pool, errs := convert.Pool(c.pool)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		if got := awaitsParent(c.pool, pool); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}
