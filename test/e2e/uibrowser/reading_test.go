package uibrowser

import (
	"encoding/csv"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/framework/browser"
)

// only shows the map of one routing domain and family, so that its labels have room.
func only(p *browser.Page, space string) {
	p.Run("location.hash='map=" + space + "'")
	p.Await("one map is shown", "document.querySelectorAll('#maps canvas').length===1")
}

// find types something into the search field, and takes the first that is suggested.
func find(p *browser.Page, text string) {
	p.Type("#find", text)
	p.Press("\r")
}

// labels returns the texts of all maps.
func labels(p *browser.Page) []string {
	var all []string
	for _, c := range p.Drawn("#maps canvas") {
		for _, text := range c.Texts {
			all = append(all, text.Text)
		}
	}
	return all
}

// awaitLabel waits until a map has a text, or has none.
func awaitLabel(p *browser.Page, text string, want bool) {
	p.Await(fmt.Sprintf("a map has the label %q: %t", text, want),
		fmt.Sprintf("[...document.querySelectorAll('#maps canvas')].some(c=>__drawn.texts.get(c)?.texts.some(t=>t.text===%q))===%t", text, want))
}

// filter shows the rows of the list that have a text, and waits until the list was drawn with it.
func filter(p *browser.Page, show, text string) {
	p.Click("#tab-list")
	p.Run("window.drawnWith=null;new MutationObserver(()=>{window.drawnWith=filter.value}).observe(document.getElementById('list-count'),{childList:true})") // which is written whenever the rows are
	p.Run(fmt.Sprintf("show.value=%q;show.dispatchEvent(new Event('change'))", show))
	p.Type("#filter", text)
	p.Await("the list is filtered", fmt.Sprintf("window.drawnWith===%q", text))
}

func (w *world) empty(t *testing.T) {
	p := w.open(t, w.view, browser.Look{})
	p.AwaitText("#map-empty", "no address space")
	judge(t, p, "without pools")
	w.pools()
	awaitLabel(p, "core", true) // it appears by itself
	w.claims()
	w.states()
}

func (w *world) loads(t *testing.T) {
	p := w.open(t, w.view, browser.Look{})
	if at := p.Location(); strings.Contains(at, "token") {
		t.Errorf("the address bar has the token: %s", at)
	}
	if title := browser.Value[string](p, "document.title"); title != "prod-eu · Cadastre" {
		t.Errorf("the page is called %q", title)
	}
	if from := browser.Value[[]string](p, "performance.getEntriesByType('resource').map(r=>new URL(r.name).origin).filter(o=>o!==location.origin)"); len(from) > 0 {
		t.Errorf("the page has loaded something from %v", from)
	}
	if p.FirstDrawn() == 0 {
		t.Error("nothing was drawn")
	}
	if entries := browser.Value[[]int](p, "whenLive"); slices.Contains(entries, 0) {
		t.Errorf("the legend and the list had %d entries when the page reported that it is in step: the elements below them move when they are drawn", entries)
	}
	for _, name := range []string{"core", "10.0.0.0/8", "v6", "2001:db8::/32"} {
		awaitLabel(p, name, true)
	}
	p.AwaitText("#legend", "held")
	for _, state := range []string{"free", "withheld", "retained", "cooling", "out of range"} {
		if legend := p.Text("#legend"); !strings.Contains(legend, state) {
			t.Errorf("the legend does not explain %s: %q", state, legend)
		}
	}
}

func (w *world) finds(t *testing.T) {
	p := w.open(t, w.view, browser.Look{})
	only(p, "default/4")
	claim := w.claim("checkout", "lb-worker-1")
	address := strings.TrimSuffix(claim.Status.AllocatedCIDR, "/32")
	find(p, address)
	p.AwaitText("#panel-title", address)
	p.AwaitText("#panel", "checkout/lb-worker-1")
	p.AwaitText("#panel", "fra-lb")
	awaitLabel(p, "lb-worker-1", true)
	// A click on the strip shows the same.
	p.Click("#panel-close")
	p.AwaitText("#panel-title", "Details")
	x, y := w.place(t, p, "lb-worker-1")
	p.Tap(x, y)
	p.AwaitText("#panel-title", address)

	find(p, "machine:prod-worker-2")
	p.AwaitText("#panel-title", "prod-worker-2")
	p.AwaitText("#panel", "prod-worker-2-eth0")
	find(p, "10.200.0.1")
	p.AwaitText("#panel-title", "10.200.0.1")
	p.AwaitText("#panel", "free")
	p.Type("#find", "no such thing")
	p.AwaitText("#suggestions", "Nothing that you may read")
}

// place returns the position of a label of a map in the window.
func (w *world) place(t *testing.T, p *browser.Page, label string) (x, y float64) {
	t.Helper()
	at := browser.Value[[]float64](p, fmt.Sprintf(`(()=>{for (const c of document.querySelectorAll('#maps canvas')) {
		const l=__drawn.texts.get(c)?.texts.find(l=>l.text===%q), b=c.getBoundingClientRect()
		if (l) return [b.x+(l.left+l.right)/2*b.width/c.width, b.y+(l.top+l.bottom)/2*b.height/c.height]
	}; return []})()`, label))
	if len(at) == 0 {
		t.Fatalf("no map has the label %q: %q", label, labels(p))
	}
	return at[0], at[1]
}

// tells compares the table with the map on which a pool is shown in full width, and with the
// objects of the API server.
func (w *world) tells(t *testing.T) {
	p := w.open(t, w.view, browser.Look{Height: 1400, Width: 1400})
	find(p, "fra-services")
	p.AwaitText("#panel-title", "fra-services")
	filter(p, "map", "")
	p.AwaitText("#list", "svc-ingest-3")
	var records v1alpha1.IPAllocationList
	suite.Must(t, w.List(t.Context(), &records))
	var want []string
	for _, record := range records.Items {
		if poolRef := record.Spec.PoolRef; poolRef != nil && poolRef.Name == "fra-services" {
			want = append(want, record.Spec.CIDR)
		}
	}
	got := browser.Value[[]string](p, "[...list.tBodies[0].rows].filter(r=>r.cells[2].innerText==='fra-services'&&r.dataset.key.startsWith('b:')).map(r=>r.cells[0].innerText)")
	slices.Sort(want)
	slices.Sort(got)
	if len(want) == 0 || !slices.Equal(want, got) {
		t.Errorf("the table has the blocks %q of fra-services, want %q", got, want)
	}
	table := p.Text("#list")
	for _, label := range labels(p) {
		if (strings.HasPrefix(label, "svc-") || strings.HasPrefix(label, "fra-")) && !strings.Contains(label, "…") && !strings.Contains(table, label) {
			t.Errorf("the map shows %q, the table does not", label)
		}
	}
}

func (w *world) links(t *testing.T) {
	p := w.open(t, w.view, browser.Look{Still: true})
	only(p, "default/4")
	find(p, "pods-api-0")
	p.AwaitText("#panel", "pods-api-0")
	p.Run("color.value='project';color.dispatchEvent(new Event('change'))")
	p.Click("#tab-free")
	p.Await("the link has the view", "location.hash.includes('map=')&&location.hash.includes('color=project')&&location.hash.includes('tab=free')&&location.hash.includes('select=')")
	awaitLabel(p, "pods-api-0", true)
	p.AwaitText("#free-note", "are free")
	free := p.Text("#free")
	link, before := p.Location(), labels(p)
	p.Go("about:blank")
	p.Go(link)
	live(p)
	p.AwaitText("#panel", "pods-api-0")
	awaitLabel(p, "pods-api-0", true)
	if after := labels(p); !slices.Equal(before, after) {
		t.Errorf("the maps show %q, the link was made when they showed %q", after, before)
	}
	if by := browser.Value[string](p, "color.value"); by != "project" {
		t.Errorf("the map is colored by %s, want project", by)
	}
	p.AwaitText("#free-note", "are free")
	if listed := p.Text("#view-free #free"); !p.Has("#view-free") || listed != free || browser.Value[string](p, "document.querySelector('#free-pool').value") != "IPPool/fra-pods" {
		t.Errorf("the free space %q is shown, the link was made when it was %q", listed, free)
	}
	find(p, "fra-lb")
	p.AwaitText("#panel-title", "fra-lb")
	p.Back()
	p.AwaitText("#panel", "pods-api-0")
	p.Forward()
	p.AwaitText("#panel-title", "fra-lb")
}

func (w *world) exports(t *testing.T) {
	p := w.open(t, w.view, browser.Look{})
	rows := w.exported(t, p, "blocks", "project:shop")
	head := rows[0]
	if !slices.Contains(head, "Addresses") || !slices.Contains(head, "Requested by") {
		t.Errorf("the columns are %q", head)
	}
	var records v1alpha1.IPAllocationList
	suite.Must(t, w.List(t.Context(), &records))
	var want, got []string
	for _, record := range records.Items {
		if record.Spec.Project == "shop" {
			want = append(want, record.Namespace+"/"+record.Spec.ClaimRef.Name)
		}
	}
	for _, row := range rows[1:] {
		_, holder, _ := strings.Cut(row[slices.Index(head, "Holder")], " ")
		got = append(got, holder)
	}
	slices.Sort(want)
	slices.Sort(got)
	if len(want) == 0 || !slices.Equal(want, got) {
		t.Errorf("%d rows were exported, want %d:\n%q\n%q", len(got), len(want), got, want)
	}
}

// exported returns the rows of the file that the list is exported to.
func (w *world) exported(t *testing.T, p *browser.Page, show, text string) [][]string {
	t.Helper()
	p.Run("window.exported=null;const real=URL.createObjectURL;URL.createObjectURL=b=>(window.exported=b,real(b))")
	filter(p, show, text)
	p.Click("#export")
	p.Await("the list is exported", "exported")
	rows, err := csv.NewReader(strings.NewReader(strings.TrimPrefix(browser.Value[string](p, "exported.text()"), "\ufeff"))).ReadAll()
	suite.Must(t, err)
	return rows
}
