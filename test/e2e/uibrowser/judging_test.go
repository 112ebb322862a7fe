package uibrowser

import (
	"math"
	"testing"

	"github.com/cadastre-dev/cadastre/test/framework/browser"
)

// widths returns those of a phone, a tablet and a desk.
func widths() []browser.Look {
	return []browser.Look{{Width: 390, Height: 844, Phone: true, Still: true}, {Width: 768, Height: 1024, Still: true}, {Width: 1400, Height: 900, Still: true}}
}

// judge checks a state of the page with axe-core in light, dark and on a phone, and checks at each
// width that all of its text can be read, with any fonts that the machine has. The page is shown as
// before at the end.
func judge(t *testing.T, p *browser.Page, state string) {
	t.Helper()
	for _, look := range widths() {
		for _, look.Wide = range []bool{true, false} {
			p.Look(look)
			painted(p)
			for _, what := range p.Illegible() {
				t.Errorf("%s, %d pixels wide, with wide text: %t: %s", state, look.Width, look.Wide, what)
			}
		}
		legibleMaps(t, p, state, look.Width)
		if look.Width != 768 {
			noneSerious(t, p, state)
		}
	}
	p.Look(browser.Look{Dark: true, Still: true})
	painted(p)
	noneSerious(t, p, state+", dark")
	p.Look(browser.Look{})
	painted(p)
}

// painted waits until two frames were drawn.
func painted(p *browser.Page) {
	p.Run("await new Promise(done=>requestAnimationFrame(()=>requestAnimationFrame(()=>requestAnimationFrame(done))))")
}

// noneSerious expects that axe-core finds nothing serious or critical.
func noneSerious(t *testing.T, p *browser.Page, state string) {
	t.Helper()
	for _, finding := range p.Findings() {
		switch finding.Impact {
		case "serious", "critical":
			t.Errorf("%s: %s", state, finding)
		default:
			t.Logf("%s: %s", state, finding)
		}
	}
}

// legibleMaps checks that no label of a map lies on another one or leaves the canvas.
func legibleMaps(t *testing.T, p *browser.Page, state string, width int64) {
	t.Helper()
	for _, canvas := range p.Drawn("#maps canvas") {
		for i, a := range canvas.Texts {
			if a.Left < 0 || a.Right > canvas.Width || a.Top < 0 {
				t.Errorf("%s, %d pixels wide: the label %q reaches from %.0f to %.0f on a canvas that is %.0f wide", state, width, a.Text, a.Left, a.Right, canvas.Width)
			}
			for _, b := range canvas.Texts[i+1:] {
				if math.Min(a.Right, b.Right)-math.Max(a.Left, b.Left) > 0.5 && math.Min(a.Bottom, b.Bottom)-math.Max(a.Top, b.Top) > 0.5 {
					t.Errorf("%s, %d pixels wide: the labels %q and %q lie on each other", state, width, a.Text, b.Text)
				}
			}
		}
	}
}

// legible brings the page into each of its states, and judges it.
func (w *world) legible(t *testing.T) {
	p := w.open(t, w.view, browser.Look{})
	judge(t, p, "at first")
	find(p, "fra-services")
	p.AwaitText("#panel-title", "fra-services")
	judge(t, p, "a pool is selected")
	only(p, "default/4")
	find(p, "svc-ingest-3")
	awaitLabel(p, "svc-ingest-3", true)
	judge(t, p, "a block is selected")
	find(p, "payments/vip-next")
	p.AwaitText("#panel-title", "vip-next")
	p.AwaitText("#panel", "PoolExhausted")
	judge(t, p, "a claim that waits is selected")
	freeOf(p, "IPPool/fra-pods")
	judge(t, p, "free space is listed")
	p.Click("#tab-changes")
	judge(t, p, "the changes are listed")
	p.Click("#tab-list")
	p.Click("#spaces-summary")
	p.Await("the choice is open", "spaces.open")
	judge(t, p, "routing domains are chosen")
	p.Press("\x1b")
	p.Click("#panel-close")
	p.Type("#find", "pods")
	p.Await("suggestions are shown", "document.querySelector('#suggestions li')&&!document.querySelector('#suggestions').hidden")
	judge(t, p, "suggestions are open")
	p.Press("\x1b")
	p.Click("#help-button")
	judge(t, p, "the keys are listed")
}
