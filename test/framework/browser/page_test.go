package browser

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// restlessPage has buttons that cannot be clicked at first: each becomes so after some frames.
const restlessPage = `<!doctype html><html lang="en"><head><title>Test</title><link rel="icon" href="data:,"><style>
body { margin: 0 } button { display: block; width: 80px; height: 30px } div { position: absolute; left: 200px }
#cover { width: 80px; height: 30px; z-index: 1 } #beside { left: 400px; width: 80px; height: 30px }
</style></head><body>
<div><button id="moving">Moves</button></div><div id="cover" style="top:200px"></div><div style="top:200px"><button id="covered">Covered</button></div>
<div style="top:300px"><button id="late" style="display:none">Late</button></div>
<div id="beside" style="top:400px"></div><div style="top:400px;left:400px"><button id="jumping">Jumps</button></div>
<div style="top:500px"><button id="replaced">Replaced</button></div>
<script>
window.clicked = []
addEventListener('click', event => clicked.push(event.target.id || event.target.tagName))
let frames = 0
const step = () => {
  if (++frames <= 30) moving.parentElement.style.top = (frames * 37) % 150 + 'px'
  if (frames === 40) { cover.remove(); late.style.display = '' }
  requestAnimationFrame(step)
}
step()
const real = document.elementFromPoint.bind(document)
document.elementFromPoint = (x, y) => {
  const element = real(x, y)
  if (element === jumping) { // it is found, and then moves
    document.elementFromPoint = real
    jumping.parentElement.style.left = '600px'
  }
  return element
}
replaced.addEventListener('pointerdown', () => replaced.replaceWith(replaced.cloneNode(true)))
</script></body></html>`

// TestClickHitsOnlyItsElement shows that a click waits, that one which would hit something else is
// not made, and that one which the page loses is not made again.
func TestClickHitsOnlyItsElement(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(restlessPage)) }))
	defer server.Close()
	b := Start(t)
	for id, want := range map[string]string{"moving": "moving", "covered": "covered", "late": "late", "jumping": "jumping", "replaced": ""} {
		t.Run(id, func(t *testing.T) {
			p := b.Open(t, server.URL, Look{})
			p.Click("#" + id)
			if got := Value[string](p, "clicked.join()"); got != want {
				t.Errorf("clicked %q, want %q", got, want)
			}
		})
	}
}
