package uibrowser

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/framework/browser"
)

// freeOf lists the free space of a pool, and returns the first block.
func freeOf(p *browser.Page, pool string) string {
	p.Click("#tab-free")
	p.Run("document.querySelector('#free-pool').value='" + pool + "';document.querySelector('#free-pool').dispatchEvent(new Event('change'))")
	p.AwaitText("#free-note", "are free")
	p.Await("free space is listed", "document.querySelector('#free tbody tr')")
	return p.Text("#free tbody tr td")
}

func (w *world) claimsFree(t *testing.T) {
	w.copies(t)
	v := w.views(t, "--read-only=false")
	p := w.open(t, v, browser.Look{})
	block := freeOf(p, "IPPool/ams-pods")
	p.Click("#free tbody tr [aria-label^='Claim ']")
	p.AwaitText("#ask-title", block)
	judge(t, p, "asks whether to claim")
	p.Click("#ask-cancel")
	p.Await("the dialogue is closed", "!document.querySelector('#ask').open")
	p.Click("#free tbody tr [aria-label^='Claim ']")
	p.Type("#ask-body .field:nth-child(2) input", "from-the-page")
	p.AwaitText("#ask-body pre", "name: from-the-page")
	p.Click("#ask-do")
	claim := &v1alpha1.IPClaim{}
	key := client.ObjectKey{Namespace: "payments", Name: "from-the-page"}
	w.Await("the claim exists", func(ctx context.Context) bool { return w.Get(ctx, key, claim) == nil })
	if claim.Status.AllocatedCIDR != block {
		t.Errorf("the claim has %s, want %s", claim.Status.AllocatedCIDR, block)
	}
	var claims v1alpha1.IPClaimList
	suite.Must(t, w.List(t.Context(), &claims, client.InNamespace("payments")))
	for _, other := range claims.Items {
		if strings.HasPrefix(other.Name, "claim-") {
			t.Errorf("%s was created by a dialog that was canceled", other.Name)
		}
	}
	filter(p, "all", "from-the-page")
	p.AwaitText("#list", "from-the-page") // a search finds only what the page has
	find(p, "payments/from-the-page")
	p.AwaitText("#panel", "payments/from-the-page")
	p.Click("#panel .danger")
	p.AwaitText("#ask-title", "from-the-page")
	p.Click("#ask-cancel")
	suite.Must(t, w.Get(t.Context(), key, claim))
	p.Click("#panel .danger")
	p.Click("#ask-do")
	w.Gone(claim)
}

// copies copies a manifest from a row of a page that only reads, and submits it to the API server.
func (w *world) copies(t *testing.T) {
	p := w.open(t, w.view, browser.Look{})
	block := freeOf(p, "IPPool/ams-pods")
	if faces := p.Text("#free tbody tr"); strings.Contains(faces, "Claim…") {
		t.Errorf("a page that only reads offers to claim: %q", faces)
	}
	manifest := filepath.Join(t.TempDir(), "claim.yaml")
	suite.Must(t, os.WriteFile(manifest, []byte(copied(p, "#free tbody tr [aria-label^='Copy YAML']")), 0o644))
	said, err := w.Kubectl(t.Context(), "create", "--dry-run=server", "-f", manifest, "-o", "jsonpath={.spec.cidr} {.spec.poolRef.name}")
	suite.Must(t, err)
	if want := block + " ams-pods"; strings.TrimSpace(said) != want {
		t.Errorf("the manifest claims %q, want %q", said, want)
	}
	if command := copied(p, "#free tbody tr [aria-label^='Copy command']"); !strings.HasPrefix(command, "kubectl ipam claim ") || !strings.Contains(command, block) {
		t.Errorf("the command is %q", command)
	}
	asksAgain(t, p)
}

// asksAgain makes a request for free space fail, and checks that it is sent again.
func asksAgain(t *testing.T, p *browser.Page) {
	t.Helper()
	p.Await("the buttons that copied have their own text again", "!document.querySelector('#free').innerText.includes('Copied')")
	listed := p.Text("#free")
	p.Run(`window.notes=[];new MutationObserver(()=>notes.push(document.querySelector('#free-note').innerText+document.querySelector('#free').innerText)).observe(document.querySelector('#free-note'),{childList:true})
const real=fetch;let failed=false;window.fetch=(url,options)=>failed||!url.startsWith('/api/free')?real(url,options):(failed=true,Promise.reject(new TypeError('failed')))`)
	p.Click("#free-again")
	p.AwaitText("#free-note", "are free")
	want := "The command does not answer: it may have ended. Asking again in 1 s." + listed
	if notes := browser.Value[[]string](p, "notes"); !slices.Contains(notes, want) {
		t.Errorf("while the command did not answer the page showed %q, want %q: the former rows, and the time of the next request", notes, want)
	}
}

// copied returns the text that a button copies.
func copied(p *browser.Page, button string) string {
	p.Run("window.copied='';navigator.clipboard.writeText=async text=>{window.copied=text}")
	p.Click(button)
	p.Await("something is copied", "window.copied")
	return browser.Value[string](p, "window.copied")
}
