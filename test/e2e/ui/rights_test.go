package ui

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/live"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// refuses sends requests that other programs and other pages may send.
func (w *world) refuses(t *testing.T) {
	c := w.start(t, "")
	for name, tc := range map[string]struct {
		path   string
		change func(*http.Request)
		code   int
	}{
		"with the token":        {"/api/who?address=10.1.0.1", func(*http.Request) {}, http.StatusOK},
		"without the token":     {"/api/who?address=10.1.0.1", func(r *http.Request) { r.Header.Del("Authorization") }, http.StatusUnauthorized},
		"with another token":    {"/api/stream", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+c.Token+"x") }, http.StatusUnauthorized},
		"from another origin":   {"/api/stream", func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }, http.StatusForbidden},
		"from another site":     {"/api/stream", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, http.StatusForbidden},
		"by another name":       {"/", func(r *http.Request) { r.Host = "evil.example" }, http.StatusMisdirectedRequest},
		"the token in the path": {"/api/stream?token=" + c.Token, func(r *http.Request) { r.Header.Del("Authorization") }, http.StatusUnauthorized},
	} {
		req := c.request(t.Context(), http.MethodGet, tc.path, nil)
		tc.change(req)
		if code, text := c.answers(req); code != tc.code || tc.code != http.StatusOK && strings.Contains(text, "team-a") {
			t.Errorf("%s: %d %s; want %d", name, code, text, tc.code)
		}
	}
}

// tenant starts the command as alice, who has the role edit in team-a alone.
func (w *world) tenant(t *testing.T) {
	c := w.start(t, "alice", "--namespace=team-a")
	v := c.views().isReady(t)
	v.awaits(t, "the blocks of alice have come", func(s viewState) bool {
		_, held := s.holds(live.Object{Kind: "IPClaim", Namespace: "team-a", Name: "private"})
		return held && len(s.claims) > 0
	})
	answers := v.text()
	for _, path := range []string{
		"/api/who?address=10.1.4.1", "/api/who?address=10.0.0.0/8", "/api/who?address=192.0.2.6",
		"/api/explain?kind=ipclaim&namespace=team-b&name=batch", "/api/explain?kind=ipclaim&namespace=team-a&name=vip-2",
		"/api/free?pool=IPPool/west&length=24", "/api/free?pool=IPPool/lab&length=24", "/api/machine?name=m-0",
	} {
		code, text := c.get(path)
		if code >= http.StatusInternalServerError && code != http.StatusInsufficientStorage {
			t.Errorf("%s: %d %s", path, code, text)
		}
		answers += strings.ReplaceAll(text, "team-b", "") // alice has named it
		if strings.Contains(text, `"team-b"`) {
			t.Errorf("%s: names team-b: %s", path, text)
		}
	}
	for _, secret := range []string{"team-b", "batch", "rig", "lab\"", "cadastre-system"} {
		if at := strings.Index(v.text(), secret); at >= 0 {
			t.Errorf("alice is sent %q: …%s…", secret, v.text()[max(0, at-200):min(len(v.text()), at+200)])
		}
	}
	if strings.Contains(answers, "IPClaim team-b") || strings.Contains(answers, `"rig"`) {
		t.Errorf("alice can read about team-b:\n%s", answers)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	want := []live.UnreadResource{{Resource: "ippools"}, {Resource: "localippools", Namespace: "team-a"}, {Resource: "ipallocations", Namespace: "team-a"}, {Resource: "ipclaims", Namespace: "team-a"}, {Resource: "ipaddressclaims"}}
	if diff := cmp.Diff(want, v.unread.Resources); diff != "" || !strings.Contains(v.unread.Text, "you may not list ippools") {
		t.Errorf("unread: %s (-want +got)\n%s", v.unread.Text, diff)
	}
	if !strings.Contains(c.Errors(t), "you may not list ippools") {
		t.Errorf("the command does not name the objects that may not be read: %q", c.Errors(t))
	}
	for _, pool := range v.pools {
		if pool.Known != (pool.ID == "LocalIPPool/team-a/own") {
			t.Errorf("%+v", pool)
		}
	}
}

// writes makes and releases a claim, if the command was started for that.
func (w *world) writes(t *testing.T) {
	const claim = `{"namespace":"team-a","name":"from-the-page","class":"subnets","length":27}`
	ask := func(c *page, method, path, body string) (int, string) {
		req := c.request(t.Context(), method, path, strings.NewReader(body))
		return c.answers(req)
	}
	reads := w.start(t, "")
	for _, method := range []string{http.MethodPost, http.MethodDelete} {
		if code, text := ask(reads, method, "/api/claims?namespace=team-a&name=apps&uid=1", claim); code != http.StatusForbidden || !strings.Contains(text, "--read-only=false") {
			t.Errorf("%s, read-only: %d %s", method, code, text)
		}
	}
	c := w.start(t, "alice", "--namespace=team-a", "--read-only=false")
	v := c.views().isReady(t)
	code, text := ask(c, http.MethodPost, "/api/claims", claim)
	stored := &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "from-the-page"}}
	suite.Must(t, w.Get(t.Context(), client.ObjectKeyFromObject(stored), stored))
	if code != http.StatusOK || stored.Status.AllocatedCIDR == "" || !strings.Contains(text, `"allocatedCIDR":"`+stored.Status.AllocatedCIDR+`"`) || !strings.Contains(text, `"kind":"IPClaim"`) {
		t.Errorf("%d %s; stored: %s", code, text, stored.Status.AllocatedCIDR)
	}
	holder := live.Object{Kind: "IPClaim", Namespace: "team-a", Name: "from-the-page"}
	v.awaits(t, "its block has come", func(s viewState) bool { _, held := s.holds(holder); return held })
	if code, text := ask(c, http.MethodPost, "/api/claims", strings.Replace(claim, "team-a", "team-b", 1)); code != http.StatusForbidden {
		t.Errorf("a claim in a namespace of others: %d %s", code, text)
	}
	if code, text := ask(c, http.MethodDelete, "/api/claims?namespace=team-a&name=from-the-page&uid=another", ""); code != http.StatusConflict {
		t.Errorf("a release of another UID: %d %s", code, text)
	}
	if code, text := ask(c, http.MethodDelete, "/api/claims?namespace=team-a&name=from-the-page&uid="+string(stored.UID), ""); code != http.StatusOK || !strings.Contains(text, "released") {
		t.Errorf("a release: %d %s", code, text)
	}
	v.awaits(t, "its block has gone", func(s viewState) bool { _, held := s.holds(holder); return !held })
}

// comes gives a user the right to read everything after the command has begun.
func (w *world) comes(t *testing.T) {
	c := w.start(t, "carol", "--namespace=team-a")
	v := c.views().isReady(t)
	v.awaits(t, "carol sees nothing", func(s viewState) bool { return len(s.pools)+len(s.blocks) == 0 && len(s.unread.Resources) == 5 })
	w.readsAll(t, "carol")
	v.awaits(t, "carol sees everything", func(s viewState) bool { return s.unread.Text == "" && len(s.pools) >= 8 && s.behind == "" })
	w.same(t, v)
}
