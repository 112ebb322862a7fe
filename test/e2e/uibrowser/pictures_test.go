package uibrowser

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cadastre-dev/cadastre/test/framework/browser"
)

// pictures takes those of the documents, in the directory that $UI_PICTURES names.
func (w *world) pictures(t *testing.T) {
	dir := os.Getenv("UI_PICTURES")
	if dir == "" {
		t.Skip("UI_PICTURES does not name a directory: run `make ui-pictures`")
	}
	at := func(name string) string { return filepath.Join(dir, "ui-"+name+".png") }
	desk := browser.Look{Width: 1360, Height: 860, Still: true}
	p := w.open(t, w.view, desk)
	only(p, "default/4")
	find(p, "fra-services")
	p.AwaitText("#panel-title", "fra-services")
	take(p, at("light"))

	p.Look(browser.Look{Width: 1360, Height: 860, Still: true, Dark: true})
	p.Run("color.value='project';color.dispatchEvent(new Event('change'))")
	find(p, "fra")
	p.AwaitText("#panel", "10.0.0.0/13")
	take(p, at("dark"))

	p = w.open(t, w.view, browser.Look{Width: 390, Height: 844, Phone: true, Still: true, Scale: 2})
	only(p, "default/4")
	find(p, "fra-lb")
	p.AwaitText("#panel-title", "fra-lb")
	take(p, at("phone"))

	p = w.open(t, w.view, desk)
	only(p, "default/6")
	find(p, "fra-v6")
	p.AwaitText("#panel-title", "fra-v6")
	take(p, at("ipv6"))

	p = w.open(t, w.view, desk)
	only(p, "default/4")
	find(p, "public-vips")
	p.AwaitText("#panel-title", "public-vips")
	filter(p, "waiting", "")
	p.AwaitText("#list", "vip-next")
	take(p, at("waiting"))

	p = w.open(t, w.tenant(t), desk)
	find(p, "payments/svc-index-6")
	p.AwaitText("#panel", "svc-index-6")
	take(p, at("tenant"))

	p = w.open(t, w.view, desk)
	onPaper(p)
	painted(p)
	p.PictureOf("#paper", at("print"))
}

// take takes a picture once all is drawn.
func take(p *browser.Page, path string) {
	p.Run("document.activeElement?.blur();document.querySelector('#suggestions').hidden=true")
	p.Await("the legend is shown", "document.querySelector('#legend li')")
	p.Run("await new Promise(done=>setTimeout(done,1100))") // the parts that are redrawn once a second
	p.Picture(path)
}
