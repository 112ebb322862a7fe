// Package browser drives a real Chromium without a window, for tests of the browser view.
package browser

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Required is the environment variable with which tests that find no browser fail. Without it they
// are skipped.
const Required = "BROWSER_REQUIRED"

// waitTimeout bounds each wait for a page.
const waitTimeout = 30 * time.Second

// names returns those under which distributions install Chromium, and Google its Chrome.
func names() []string { return []string{"chromium", "chromium-browser", "google-chrome"} }

// Browser represents a Chromium that runs. It may be used by one test at a time.
type Browser struct {
	ctx context.Context //nolint:containedctx // it is the browser, as chromedp has it
}

// find returns the path of a browser: that of the environment variable CHROMIUM, or one in PATH.
func find() (string, error) {
	if path := os.Getenv("CHROMIUM"); path != "" {
		return path, nil
	}
	for _, name := range names() {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("none of %v is in PATH, and CHROMIUM does not name one: install Chromium (in Debian: apt-get install chromium)", names())
}

// Start starts a browser that ends with the test. Without one the test is skipped, or fails if
// Required is set.
func Start(t *testing.T) *Browser {
	t.Helper()
	path, err := find()
	switch {
	case err != nil && os.Getenv(Required) != "":
		t.Fatalf("no browser: %v", err)
	case err != nil:
		t.Skipf("not tested in a browser: %v", err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium refuses its sandbox to root
	}
	ctx, end := chromedp.NewExecAllocator(context.Background(), options...) // ends in cleanup, with the test's context over
	t.Cleanup(end)
	ctx, _ = chromedp.NewContext(ctx)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("starting %s: %v", path, err)
	}
	t.Cleanup(func() { _ = chromedp.Cancel(ctx) })
	return &Browser{ctx: ctx}
}

// Look holds the settings by which a page is shown.
type Look struct {
	// Width and Height of the window, in pixels of CSS. 0: 1400 and 900.
	Width, Height int64
	// Scale is the number of pixels of the screen for one of CSS. 0: 1.
	Scale float64
	// Dark makes the system prefer dark colors, Phone has a touch screen, Still prefers less
	// movement.
	Dark, Phone, Still bool
	// Wide spaces the text of the document that is open as WCAG 2.2, criterion 1.4.12, asks pages
	// to bear. It is wider than in the widest font that a machine may have.
	Wide bool
	// Media is the media type of CSS: screen, or print.
	Media string
}

// Page represents a tab with separate storage. Its methods fail the test.
type Page struct {
	t   *testing.T
	ctx context.Context //nolint:containedctx // it is the tab, as chromedp has it

	mu     sync.Mutex
	errors []string
}

// Open opens an address in a new tab, which shares nothing with others and is closed with the test.
func (b *Browser) Open(t *testing.T, address string, look Look) *Page {
	t.Helper()
	ctx, end := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext())
	t.Cleanup(end)
	p := &Page{t: t, ctx: ctx}
	p.must("opening a tab", chromedp.Do(ctx))
	p.must("listening to a tab", chromedp.Listen(ctx, p.note))
	_, err := chromedp.Call(ctx, log.Enable, struct{}{})
	p.must("listening to a tab", err)
	p.Look(look)
	p.Go(address)
	return p
}

// Look changes how the page is shown.
func (p *Page) Look(look Look) {
	p.t.Helper()
	if look.Width == 0 {
		look.Width, look.Height = 1400, 900
	}
	options := []chromedp.EmulateViewportOption{chromedp.EmulateScale(max(look.Scale, 1))}
	if look.Phone {
		options = append(options, chromedp.EmulateMobile, chromedp.EmulateTouch)
	}
	p.do("resizing", chromedp.EmulateViewport(look.Width, look.Height, options...))
	scheme, motion := "light", "no-preference"
	if look.Dark {
		scheme = "dark"
	}
	if look.Still {
		motion = "reduce"
	}
	_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Media:    look.Media,
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: motion}},
	})
	p.must("setting the preferences of the system", err)
	p.space(look.Wide)
}

// space spaces the text of the document widely, or as its style does. That of canvases stays as
// it is: a page measures it itself, and may remember its width.
func (p *Page) space(wide bool) {
	p.t.Helper()
	rules := ""
	if wide {
		rules = "* { letter-spacing: 0.12em !important; word-spacing: 0.16em !important }" +
			"canvas { letter-spacing: normal !important; word-spacing: normal !important }"
	}
	p.Run("globalThis.__spacing??=new CSSStyleSheet();__spacing.replaceSync(" + quoted(rules) + ");document.adoptedStyleSheets=[__spacing]")
}

// Go opens an address in the tab, and waits until it is loaded.
func (p *Page) Go(address string) {
	p.t.Helper()
	p.do("opening "+address, chromedp.Navigate(address))
}

// Reload loads the page again.
func (p *Page) Reload() {
	p.t.Helper()
	p.do("loading again", chromedp.Reload())
}

// Errors returns the complaints of the browser since the page was opened, or since the last call:
// exceptions, console.error, requests that failed, loads that the content security policy has
// refused.
func (p *Page) Errors() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	said := p.errors
	p.errors = nil
	return said
}

// note runs in the loop that reads the messages of the tab.
func (p *Page) note(event any) {
	var said string
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		said = e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			said += " " + e.ExceptionDetails.Exception.Description
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type != runtime.ConsoleAPICalledTypeError {
			return
		}
		said = "console.error:"
		for _, argument := range e.Args {
			said += " " + cmp.Or(string(argument.Value), argument.Description)
		}
	case *log.EventEntryAdded:
		if e.Entry.Level != log.EntryLevelError {
			return
		}
		said = e.Entry.Text + " " + e.Entry.URL
	default:
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.errors = append(p.errors, said)
}

// do runs an action within waitTimeout.
func (p *Page) do(what string, action chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	run(p, what, action)
}

// run runs an action within waitTimeout, and returns its value.
func run[T any](p *Page, what string, action chromedp.Action[T]) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, waitTimeout)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	p.must(what, err)
	return value
}

func (p *Page) must(what string, err error) {
	p.t.Helper()
	if err == nil {
		return
	}
	if errors.Is(err, context.DeadlineExceeded) {
		p.t.Fatalf("%s: not within %v; the browser reported: %v", what, waitTimeout, p.Errors())
	}
	p.t.Fatalf("%s: %v; the browser reported: %v", what, err, p.Errors())
}
