package uibrowser

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/framework/browser"
)

func (w *world) refuses(t *testing.T) {
	t.Run("without the token", func(t *testing.T) {
		p := w.browser.Open(t, w.view.Origin+"/", browser.Look{})
		p.AwaitText("#gate", "Open the link that kubectl ipam ui has printed")
		if asked := browser.Value[[]string](p, "performance.getEntriesByType('resource').map(r=>r.name).filter(n=>n.includes('/api/'))"); len(asked) > 0 || p.Has("#app") {
			t.Errorf("the page has asked %v, and is shown: %t", asked, p.Has("#app"))
		}
		judge(t, p, "without the token")
		if said := p.Errors(); len(said) > 0 {
			t.Errorf("the browser complains: %q", said)
		}
	})
	t.Run("with a wrong token", func(t *testing.T) {
		p := w.browser.Open(t, w.view.Origin+"/#token=wrong", browser.Look{})
		p.AwaitText("#gate", "The token of this page is wrong")
		if kept := browser.Value[string](p, "Object.values(localStorage).join()"); strings.Contains(kept, "wrong") {
			t.Errorf("the wrong token is kept: %s", kept)
		}
	})
	t.Run("from another origin", w.refusesOthers)
	t.Run("by another name of the machine", func(t *testing.T) {
		// Names below localhost are resolved to the loopback interface, as those of a page
		// that rebinds its own name are.
		p := w.browser.Open(t, strings.Replace(w.view.Address, "127.0.0.1", "rebound.localhost", 1), browser.Look{})
		p.AwaitText("body", "nothing is served under the name")
		if code := browser.Value[int](p, "performance.getEntriesByType('navigation')[0].responseStatus"); code != http.StatusMisdirectedRequest {
			t.Errorf("the answer has the code %d, want %d", code, http.StatusMisdirectedRequest)
		}
	})
}

// attempts are the requests that a page of another origin tries: each has the text that it has read
// as its result.
const attempts = `(async () => {
	const url = %[1]q + '/api/stream', token = %[2]q
	const read = async (options) => { try { const r = await fetch(url, options); return r.type + ' ' + r.status + ' ' + await r.text() } catch (e) { return 'refused' } }
	const load = (tag, set) => new Promise((done) => { const e = document.createElement(tag); e.onload = () => done('loaded'); e.onerror = () => done('refused'); set(e); document.body.append(e) })
	return {
		plain: await read({}), token: await read({ headers: { Authorization: 'Bearer ' + token } }),
		opaque: await read({ mode: 'no-cors' }), cookies: await read({ credentials: 'include', headers: { Authorization: 'Bearer ' + token } }),
		script: await load('script', (e) => { e.type = 'module'; e.src = %[1]q + '/main.js' }),
		style: await load('link', (e) => { e.rel = 'stylesheet'; e.href = %[1]q + '/style.css' }),
	}
})()`

// refusesOthers lets a page of another port of this machine read the register, and frame the page.
func (w *world) refusesOthers(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(rw, "<!doctype html><html lang=en><head><link rel=icon href=data:,></head><body></body></html>")
	}))
	defer server.Close()
	p := w.browser.Open(t, server.URL, browser.Look{})
	for what, learnt := range browser.Value[map[string]string](p, fmt.Sprintf(attempts, w.view.Origin, w.view.Token)) {
		if learnt != "refused" && learnt != "opaque 0 " {
			t.Errorf("%s: another page learns %q", what, learnt)
		}
	}
	_ = p.Errors()
	p.Run(fmt.Sprintf("await new Promise(done=>{const f=document.createElement('iframe');f.onload=done;f.src=%q;document.body.append(f)})", w.view.Address))
	if said := p.Errors(); !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, "frame-ancestors") || strings.Contains(s, "403") }) {
		t.Errorf("a frame of another page is not refused, the browser reports %q", said)
	}
}

// tenants looks at the page as alice, who may read her own namespace alone.
func (w *world) tenants(t *testing.T) {
	p := w.open(t, w.tenant(t), browser.Look{})
	p.AwaitText("#unread", "payments")
	judge(t, p, "of a tenant")
	filter(p, "waiting", "vip-next")
	p.AwaitText("#list", "payments/vip-next")
	filter(p, "all", "payments/svc-api-0")
	p.AwaitText("#list", "payments/svc-api-0")
	filter(p, "all", "")
	said := []string{browser.Value[string](p, "document.documentElement.outerHTML"), strings.Join(labels(p), "\n")}
	rows := w.exported(t, p, "blocks", "payments")
	for _, row := range rows {
		said = append(said, strings.Join(row, " "))
	}
	var records v1alpha1.IPAllocationList
	suite.Must(t, w.List(t.Context(), &records))
	own := 0
	for _, record := range records.Items {
		if record.Namespace == "payments" {
			own++
		}
	}
	if len(rows)-1 != own {
		t.Errorf("alice has %d rows of blocks, want %d", len(rows)-1, own)
	}
	otherClaim := w.claim("checkout", "lb-worker-1")
	find(p, strings.TrimSuffix(otherClaim.Status.AllocatedCIDR, "/32"))
	p.Await("the command has answered", "document.querySelector('#panel .section')||document.querySelector('#panel .quiet')")
	var complaints []string
	w.Await("the complaint of the browser, which may follow the answer: not found, for her", func(context.Context) bool {
		complaints = append(complaints, p.Errors()...)
		return len(complaints) > 0
	})
	if len(complaints) > 1 || !strings.Contains(complaints[0], "/api/who") {
		t.Errorf("the browser complains: %q", complaints)
	}
	for _, tab := range []string{"#tab-free", "#tab-changes"} {
		p.Click(tab)
		said = append(said, browser.Value[string](p, "document.documentElement.outerHTML"))
	}
	for _, secret := range w.secrets(t) {
		for _, text := range said {
			if i := strings.Index(text, secret); i >= 0 {
				t.Errorf("alice reads %q in: %s", secret, text[max(0, i-80):min(len(text), i+80)])
				break
			}
		}
	}
}

// secrets returns names of namespaces, of claims and of pools that alice may not read.
func (w *world) secrets(t *testing.T) []string {
	t.Helper()
	var claims v1alpha1.IPClaimList
	suite.Must(t, w.List(context.Background(), &claims))
	names := []string{"checkout", "ml-training", "observability", "replication", "research"}
	for _, claim := range claims.Items {
		if claim.Namespace != "payments" && claim.Name != "vip-next" {
			names = append(names, "/"+claim.Name, ">"+claim.Name+"<")
		}
	}
	return names
}
