package uibrowser

import (
	"context"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/framework/browser"
)

// follows keeps the page open while a claim is created and deleted elsewhere.
func (w *world) follows(t *testing.T) {
	p := w.open(t, w.view, browser.Look{})
	p.Run("window.same=true") // gone if the page is loaded again
	only(p, "default/4")
	find(p, "svc-cache-10") // the last one: the next ones are beside it
	awaitLabel(p, "svc-cache-10", true)
	filter(p, "all", "guest")
	p.AwaitText("#list-count", "No row fits")
	claim := build.Claim("search", "guest").Pool("fra-services").Length(20).Obj()
	w.Created(claim)
	awaitLabel(p, "guest", true)
	p.AwaitText("#list", "search/guest")
	p.Click("#tab-changes")
	p.AwaitText("#changes", "search/guest")
	p.AwaitText("#changes", "granted")
	w.Deleted(claim)
	awaitLabel(p, "guest", false)
	p.AwaitText("#changes", "released")
	p.Click("#tab-list")
	p.AwaitText("#list-count", "No row fits")
	if !browser.Value[bool](p, "window.same===true") {
		t.Error("the page was loaded again")
	}
}

// waits makes a claim wait for a pool that is full, until its block is released.
func (w *world) waits(t *testing.T) {
	p := w.open(t, w.view, browser.Look{})
	w.Pools(build.Pool("single").CIDR("198.51.100.7/32").Obj())
	first := build.Claim("payments", "first").Pool("single").Length(32).Obj()
	second := build.Claim("payments", "second").Pool("single").Length(32).Obj()
	w.Created(first, second)
	filter(p, "waiting", "second")
	p.AwaitText("#list", "payments/second")
	p.Run("window.row=document.querySelector('#list tbody button')")
	third := build.Claim("payments", "second-too").Pool("single").Length(32).Obj()
	w.Created(third)
	p.AwaitText("#list", "payments/second-too")
	if !browser.Value[bool](p, "window.row.isConnected&&window.row.closest('tr').innerText.includes('payments/second')") {
		t.Error("the row of a claim is created again when another claim comes: a button that is pressed at that time is not clicked")
	}
	w.Deleted(third)
	p.Await("the third claim is gone", "!document.querySelector('#list').innerText.includes('second-too')")
	p.Click("#list tbody button")
	p.AwaitText("#panel-title", "payments/second")
	p.AwaitText("#panel", "PoolExhausted")
	p.AwaitText("#panel", "single")
	w.Deleted(first)
	filter(p, "blocks", "second")
	p.AwaitText("#list", "198.51.100.7")
	p.Click("#list tbody button")
	p.AwaitText("#panel", "payments/second")
	p.AwaitText("#panel", "held")
	w.Deleted(second)
	w.Gone(first, second)
	w.Await("the pool is free", func(ctx context.Context) bool {
		pool := &v1alpha1.IPPool{}
		return w.Get(ctx, client.ObjectKey{Name: "single"}, pool) == nil && pool.Status.Allocations == 0
	})
	w.Deleted(build.Pool("single").Obj())
}

// restarts ends the API server, and starts it again.
func (w *world) restarts(t *testing.T) {
	w.Patience = time.Minute
	doomed := build.Claim("search", "doomed").Pool("fra-services").Length(20).Obj()
	w.Created(doomed)
	p := w.open(t, w.view, browser.Look{})
	p.Run("window.same=true")
	filter(p, "blocks", "search/doomed")
	p.AwaitText("#list", "search/doomed")
	suite.Must(t, w.APIServer.Stop())
	p.Await("the page shows that it is behind", "document.querySelector('#sign').dataset.phase==='behind'")
	p.AwaitText("#banner-text", "may be behind")
	p.AwaitText("#list", "search/doomed") // the data already read stays
	judge(t, p, "behind")
	suite.Must(t, w.APIServer.Start(t.Context()))
	w.Await("a claim is released", func(ctx context.Context) bool { return client.IgnoreNotFound(w.Delete(ctx, doomed)) == nil })
	born := build.Claim("search", "born").Pool("ams-nodes").Length(28).Obj()
	w.Await("a claim is served", func(ctx context.Context) bool { return w.Create(ctx, born) == nil })
	live(p)
	p.Await("no banner is left", "document.querySelector('#banner').hidden")
	p.AwaitText("#list-count", "No row fits")
	p.Type("#filter", "search/born")
	p.AwaitText("#list", born.Status.AllocatedCIDR)
	if !browser.Value[bool](p, "window.same===true") {
		t.Error("the page was loaded again")
	}
}
