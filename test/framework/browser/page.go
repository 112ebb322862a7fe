package browser

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

//go:embed target.js
var pressable string

// Value returns the value of an expression of JavaScript, once it is settled if it is a promise.
func Value[T any](p *Page, expression string) T {
	p.t.Helper()
	return run(p, "evaluating "+expression, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise, chromedp.EvalAsValue))
}

// Run runs a statement of JavaScript.
func (p *Page) Run(statement string) {
	p.t.Helper()
	Value[bool](p, "(async()=>{"+statement+";return true})()")
}

// Await waits until an expression is true.
func (p *Page) Await(what, expression string) {
	p.t.Helper()
	run(p, "waiting until "+what, chromedp.Poll[bool]("!!("+expression+")"))
}

// AwaitText waits until an element has a text in it.
func (p *Page) AwaitText(selector, text string) {
	p.t.Helper()
	p.Await(fmt.Sprintf("%s says %q", selector, text), fmt.Sprintf("(document.querySelector(%s)?.innerText??'').includes(%s)", quoted(selector), quoted(text)))
}

// Text returns the visible text of an element.
func (p *Page) Text(selector string) string {
	p.t.Helper()
	return Value[string](p, fmt.Sprintf("document.querySelector(%s)?.innerText??''", quoted(selector)))
}

// Has reports whether an element exists and is visible.
func (p *Page) Has(selector string) bool {
	p.t.Helper()
	return Value[bool](p, fmt.Sprintf("!!document.querySelector(%s)?.checkVisibility({visibilityProperty:true})", quoted(selector)))
}

// target holds the place at which to press an element, or why it cannot be pressed.
type target struct {
	X, Y float64
	Why  string
}

// Click clicks into the middle of an element, once it is seen, stays in its place, and nothing
// covers it. A press that hits something else, because the page has moved just before, has no
// effect and is made again. If the page loses a click after the element was pressed, it stays lost.
func (p *Page) Click(selector string) {
	p.t.Helper()
	why := ""
	for end := time.Now().Add(waitTimeout); time.Now().Before(end); {
		at := Value[target](p, "("+pressable+")("+quoted(selector)+")")
		if why = at.Why; why != "" {
			continue
		}
		p.Tap(at.X, at.Y)
		if Value[bool](p, "globalThis.__landed?.()??true") { // a document that was opened by the click has none
			return
		}
		why = "it moved before it was pressed"
	}
	p.t.Fatalf("clicking on %s: not within %v: %s; the browser reported: %v", selector, waitTimeout, why, p.Errors())
}

// Type replaces the content of a field, as a person who types.
func (p *Page) Type(selector, text string) {
	p.t.Helper()
	p.Click(selector)
	p.do("typing into "+selector, chromedp.Steps(
		chromedp.Steps(func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
			_, err := chromedp.Evaluate[bool]("(document.activeElement.select?.(),document.execCommand('delete'),true)")(ctx, target)
			return chromedp.Void{}, err
		}),
		chromedp.SendKeys(chromedp.CSS(selector), text),
	))
}

// Press presses keys, each a rune: see chromedp's package kb for those without a letter.
func (p *Page) Press(keys string, options ...chromedp.KeyOption) {
	p.t.Helper()
	p.do(fmt.Sprintf("pressing %q", keys), chromedp.KeyEvent(keys, options...))
}

// Box holds the place of an element, in pixels of CSS.
type Box struct{ X, Y, Width, Height float64 }

// Box returns that of an element.
func (p *Page) Box(selector string) Box {
	p.t.Helper()
	return Value[Box](p, fmt.Sprintf("(()=>{const b=document.querySelector(%s).getBoundingClientRect();return {X:b.x,Y:b.y,Width:b.width,Height:b.height}})()", quoted(selector)))
}

// Picture writes the visible part of the page to a file, as PNG.
func (p *Page) Picture(path string) {
	p.t.Helper()
	p.write(path, run(p, "taking a picture", chromedp.CaptureScreenshot()))
}

// Print writes the page as it would be printed to a file, as PDF.
func (p *Page) Print(path string) {
	p.t.Helper()
	p.write(path, run(p, "printing", chromedp.PrintToPDF()))
}

func (p *Page) write(path string, content []byte) {
	p.t.Helper()
	p.must("writing "+path, os.MkdirAll(filepath.Dir(path), 0o755))
	p.must("writing "+path, os.WriteFile(path, content, 0o644))
}

// Heap returns how many bytes the objects of the page take, after unused ones were collected.
func (p *Page) Heap() float64 {
	p.t.Helper()
	_, err := chromedp.Call(p.ctx, heapprofiler.CollectGarbage, struct{}{})
	p.must("collecting garbage", err)
	usage, err := chromedp.Call(p.ctx, runtime.GetHeapUsage, struct{}{})
	p.must("measuring the heap", err)
	return usage.UsedSize
}

func quoted(text string) string {
	literal, _ := json.Marshal(text) // of a string: no error
	return string(literal)
}

// Tap clicks at a point of the window.
func (p *Page) Tap(x, y float64) {
	p.t.Helper()
	p.do("clicking at a point", chromedp.MouseClickXY(x, y))
}

// Touch touches a point of the window with a finger.
func (p *Page) Touch(x, y float64) {
	p.t.Helper()
	p.do("touching a point", chromedp.TapXY(x, y))
}
