package browser

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const page = `<!doctype html><html lang="en"><head><title>Test</title><meta name="viewport" content="width=device-width"><link rel="icon" href="data:,"></head><body><main><h1>Test</h1>
<input id="field" aria-label="field"><button id="button">Count</button><output id="out">0</output>
<p id="dark"></p><img src="/gone.png" id="image"></main>
<script>
button.onclick = () => { out.textContent = field.value + '!' }
dark.textContent = matchMedia('(prefers-color-scheme: dark)').matches + ' ' + innerWidth
console.error('said', 1)
</script></body></html>`

// TestBrowser tests the functions that the tests of the browser view rely on.
func TestBrowser(t *testing.T) {
	b := Start(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(page))
	}))
	defer server.Close()
	p := b.Open(t, server.URL, Look{Width: 390, Height: 800, Dark: true, Phone: true})
	p.AwaitText("#dark", "true 390")
	p.Type("#field", "one")
	p.Click("#button")
	p.AwaitText("#out", "one!")
	p.Type("#field", "two")
	p.Click("#button")
	p.AwaitText("#out", "two!")
	said := p.Errors()
	for _, want := range []string{"404", "console.error: \"said\" 1"} {
		if !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, want) }) {
			t.Errorf("the browser complained of %q, want something with %q", said, want)
		}
	}
	if findings := p.Findings(); len(findings) != 1 || findings[0].ID != "image-alt" || findings[0].Impact != "critical" {
		t.Errorf("axe-core finds %v, want that an image has no text", findings)
	}
	p.Picture(filepath.Join(t.TempDir(), "picture.png"))
	p.Print(filepath.Join(t.TempDir(), "page.pdf"))
	if p.Heap() <= 0 {
		t.Error("the page has no heap")
	}
	p.Look(Look{})
	p.Reload()
	p.AwaitText("#dark", "false 1400")
	other := b.Open(t, server.URL, Look{})
	p.Run("localStorage.token='secret'")
	other.Reload()
	if token := Value[string](other, "localStorage.token??''"); token != "" {
		t.Errorf("another page has the storage of this: %q", token)
	}
}
