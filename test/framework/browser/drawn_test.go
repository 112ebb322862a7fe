package browser

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const illegiblePage = `<!doctype html><html lang="en"><head><title>Test</title><link rel="icon" href="data:,"><style>
body { margin: 0 } div, p { margin: 0; white-space: nowrap }
#cut { width: 40px; overflow: hidden } #fine { width: 40px; overflow: hidden; text-overflow: ellipsis }
#rolled { width: 40px; overflow: auto } #low { height: 10px; overflow: hidden }
#on { margin-top: -12px } #off { position: absolute; top: 200px; left: 350px }
#under { position: absolute; top: 300px } #menu { position: absolute; top: 300px; background: white }
select { width: 50px } #narrow, #titled { width: 60px } #titled { text-overflow: ellipsis } #reader { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%) }
</style></head><body>
<p id="cut">Cut off at the side</p><p id="fine" title="Shortened as it should be">Shortened as it should be</p><p id="rolled">Rolled into view</p><p id="low">Cut off below</p>
<p id="below">This is below</p><p id="on">This lies on it</p>
<p id="off">Beyond the window</p><p id="under">Covered by a menu</p><p id="menu">A menu that covers it</p>
<select id="choice"><option>A long choice</option></select><input type="text" id="narrow" placeholder="A long placeholder"><input type="text" id="titled" placeholder="A long placeholder" title="A long placeholder"><span id="reader">For readers of screens alone</span>
<canvas id="canvas" width="100" height="50"></canvas>
<script>
const c = canvas.getContext('2d')
let at = 0
window.move = () => requestAnimationFrame(() => { c.clearRect(0, 0, 100, 50); c.fillText('label', at += 1, 20) })
move()
</script></body></html>`

// TestIllegible finds each kind of text that cannot be read, and nothing else.
func TestIllegible(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(illegiblePage)) }))
	defer server.Close()
	p := Start(t).Open(t, "about:blank", Look{Width: 390, Height: 800})
	p.NoteDrawing()
	received := p.Received()
	p.Go(server.URL)
	found := p.Illegible()
	for _, want := range []string{
		`of #cut is clipped by #cut`, `of #low is clipped by #low`, `"This is below" of #below and "This lies on it" of #on lie on each other`,
		`of #off reaches from 350`, `of #choice needs`, `of #narrow needs`, `the page is `,
	} {
		found = remove(t, found, want)
	}
	if len(found) > 0 {
		t.Errorf("these can be read: %q", found)
	}
	p.Look(Look{Width: 390, Height: 800, Wide: true})
	if wide := Value[string](p, "getComputedStyle(below).letterSpacing"); wide == "normal" {
		t.Error("the text is not wide")
	}
	p.Look(Look{Width: 390, Height: 800})
	if received.Load() != int64(len(illegiblePage)) {
		t.Errorf("received %d bytes, want %d", received.Load(), len(illegiblePage))
	}
	p.Await("something is drawn", "__drawn.first>0")
	if drawn := p.Drawn("#canvas"); len(drawn) != 1 || len(drawn[0].Texts) != 1 || drawn[0].Texts[0].Text != "label" || drawn[0].Texts[0].Left != 1 {
		t.Errorf("the canvas has %+v, want one label at 1", drawn)
	}
	frames := p.Frames(20, "move")
	if calls := Quantile(frames, func(f Frame) float64 { return f.Calls }, 0.5); len(frames) != 20 || calls != 2 {
		t.Errorf("%d frames with %v calls each, want 20 with 2", len(frames), calls)
	}
}

func remove(t *testing.T, found []string, want string) []string {
	t.Helper()
	for i, one := range found {
		if strings.Contains(one, want) {
			return append(found[:i:i], found[i+1:]...)
		}
	}
	t.Errorf("found %q, want something with %q", found, want)
	return found
}
