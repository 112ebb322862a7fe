package uibrowser

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/framework/browser"
)

// focused is the element that has the focus: its id, or that of its container.
const focused = "(e=>e.id||(e.closest('[id]')?.id??'')+' '+e.tagName.toLowerCase())(document.activeElement)"

// ring reports whether one sees which element has the focus.
const ring = "(s=>s.outlineStyle!=='none'&&parseFloat(s.outlineWidth)>=1)(getComputedStyle(document.activeElement))"

func (w *world) keys(t *testing.T) {
	p := w.open(t, w.view, browser.Look{})
	var order []string
	for range 24 {
		p.Press(kb.Tab)
		at := browser.Value[string](p, focused)
		if !browser.Value[bool](p, ring) {
			t.Errorf("one does not see that %s has the focus", at)
		}
		order = append(order, at)
	}
	t.Logf("Tab goes to %q", order)
	last := -1
	for _, want := range []string{"find", "theme", "help-button", "spaces-summary", "color", "zoom-out", "zoom-in", "zoom-all", "maps canvas", "tab-list", "show", "filter", "export"} {
		at := slices.Index(order, want)
		if at <= last {
			t.Errorf("Tab reaches %s at %d, the element before it on the page is at %d", want, at, last)
		}
		last = at
	}
	p.Run("document.activeElement.blur()")
	p.Press("/")
	p.Await("the search field has the focus", "document.activeElement.id==='find'")
	find(p, "fra-services")
	p.AwaitText("#panel-title", "fra-services")
	p.Run("document.activeElement.blur()")
	p.Press("m")
	p.Await("the map has the focus", "document.activeElement.tagName==='CANVAS'")
	p.Press(kb.ArrowDown)
	p.Await("a block below is selected", "document.querySelector('#panel-kind').innerText==='Block'")
	first := p.Text("#panel-kind") + p.Text("#panel-title")
	p.Press(kb.ArrowRight)
	p.Await("the next one is selected", "document.querySelector('#panel-kind').innerText+document.querySelector('#panel-title').innerText!=='"+first+"'")
	p.Press(kb.ArrowUp)
	p.AwaitText("#panel-title", "fra-services")
	p.Press(kb.Escape)
	p.AwaitText("#panel-title", "Details")
	p.Press("?")
	p.Await("the keys are listed", "document.querySelector('#help').open")
	p.Press(kb.Escape)
	p.Await("the list of keys is closed", "!document.querySelector('#help').open")
	for key, tab := range map[string]string{"f": "view-free", "c": "view-changes", "l": "view-list"} {
		p.Press(key)
		p.Await(tab+" is shown", "!document.querySelector('#"+tab+"').hidden")
	}
}

func (w *world) looks(t *testing.T) {
	t.Run("less movement", w.still)
	t.Run("themes", w.themes)
	t.Run("a phone", w.phone)
	t.Run("paper", w.prints)
}

// positions is the number of places on which a map has drawn its first tick while it went to a
// pool.
const positions = `(async()=>{const ticks=new Set();document.querySelector('#find').value='fra-lb';document.querySelector('#find-form').requestSubmit()
for(let i=0;i<60;i++){await new Promise(done=>requestAnimationFrame(done));for(const c of document.querySelectorAll('#maps canvas')){const t=__drawn.texts.get(c)?.texts;if(t)ticks.add(c.ariaLabel+t.map(l=>l.text+l.left))}}
return ticks.size})()`

func (w *world) still(t *testing.T) {
	moving := browser.Value[int](w.open(t, w.view, browser.Look{}), positions)
	p := w.open(t, w.view, browser.Look{Still: true})
	still := browser.Value[int](p, positions)
	// One before, one after for each of the two maps.
	if still > 4 || moving <= still {
		t.Errorf("the maps were drawn in %d ways, and in %d if the system prefers less movement, want no animation", moving, still)
	}
	if name := browser.Value[string](p, "getComputedStyle(document.querySelector('#sign .dot')).animationName"); name != "none" {
		t.Errorf("the sign is animated by %s", name)
	}
}

// ground is the color behind the page, and that of a corner of the first map.
const ground = "getComputedStyle(document.body).backgroundColor+' '+document.querySelector('#maps canvas').getContext('2d').getImageData(1,1,1,1).data.join()"

func (w *world) themes(t *testing.T) {
	p := w.open(t, w.view, browser.Look{})
	painted(p)
	light := browser.Value[string](p, ground)
	p.Look(browser.Look{Dark: true})
	painted(p)
	dark := browser.Value[string](p, ground)
	choose := func(theme string) {
		p.Run("theme.value='" + theme + "';theme.dispatchEvent(new Event('change'))")
		painted(p)
	}
	choose("light")
	if chosen := browser.Value[string](p, ground); light == dark || chosen != light {
		t.Errorf("the colors are %s in light, %s in dark, and %s when light is chosen in a dark system", light, dark, chosen)
	}
	p.Look(browser.Look{})
	choose("dark")
	p.Reload()
	live(p)
	painted(p)
	if kept := browser.Value[string](p, ground); kept != dark {
		t.Errorf("after the page is loaded again the colors are %s, want those of dark, %s", kept, dark)
	}
}

func (w *world) phone(t *testing.T) {
	p := w.open(t, w.view, browser.Look{Width: 390, Height: 844, Phone: true, Still: true})
	if p.Has("#panel") {
		t.Error("the details cover the map before anything is selected")
	}
	find(p, "svc-ingest-3")
	p.AwaitText("#panel", "svc-ingest-3")
	awaitLabel(p, "svc-…t-3", true)
	if box := p.Box("#panel"); box.Y < 200 || box.Y+box.Height > 845 || box.Width < 389 {
		t.Errorf("the details are a sheet at %+v, want one at the bottom with the map above", box)
	}
	p.Click("#panel-close")
	p.Await("the sheet is closed", "!document.querySelector('#panel').checkVisibility()")
	p.Touch(w.place(t, p, "svc-…t-3"))
	p.AwaitText("#panel", "svc-ingest-3")
	for _, small := range browser.Value[[]string](p, `[...document.querySelectorAll('button,select,input,summary,[role=tab]')].filter(e=>e.checkVisibility()&&!e.closest('.hidden')&&!e.classList.contains('link')&&e.type!=='checkbox')
		.map(e=>[e,e.getBoundingClientRect()]).filter(([,b])=>b.width>1&&(b.width<24||b.height<24)).map(([e,b])=>(e.id||e.innerText)+' '+b.width+' x '+b.height)`) {
		t.Errorf("%s is too small for a finger", small)
	}
}

func (w *world) prints(t *testing.T) {
	p := w.open(t, w.view, browser.Look{})
	path := filepath.Join(t.TempDir(), "page.pdf")
	p.Print(path)
	pdf, err := os.ReadFile(path)
	suite.Must(t, err)
	if !bytes.HasPrefix(pdf, []byte("%PDF")) || len(pdf) < 20_000 {
		t.Errorf("the page is printed to %d bytes that begin with %q", len(pdf), pdf[:min(8, len(pdf))])
	}
	onPaper(p)
	if p.Has("#app") || !p.Has("#paper .map-on-paper") || p.Has("button") || p.Has("input") {
		t.Error("on paper there are controls, or no map")
	}
	for _, text := range []string{"prod-eu", "fra-services", "held", "Routing domain"} {
		p.AwaitText("#paper", text)
	}
	for _, what := range p.Illegible() {
		t.Error("on paper: ", what)
	}
}

// onPaper shows the page as it is printed.
func onPaper(p *browser.Page) {
	p.Look(browser.Look{Width: 1000, Height: 1400, Media: "print"})
	p.Run("dispatchEvent(new Event('beforeprint'))")
	p.Await("the paper has maps", "document.querySelector('#paper canvas')")
}
