package browser

import (
	_ "embed"
	"encoding/json"
	"slices"
	"sync/atomic"

	"github.com/chromedp/cdproto/network"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

//go:embed legible.js
var legible string

//go:embed canvas.js
var canvas string

// Illegible returns the parts of the page's text that cannot be read as it is now: text that is
// clipped, lies on other text, or is outside of the window. A text that is shortened with an
// ellipsis is not clipped if the element has all of it as its title.
func (p *Page) Illegible() []string {
	p.t.Helper()
	return Value[[]string](p, legible)
}

// Prepare runs a script in all documents that are opened in the tab from now on, before those
// of the page.
func (p *Page) Prepare(script string) {
	p.t.Helper()
	_, err := chromedp.Call(p.ctx, cdppage.AddScriptToEvaluateOnNewDocument, cdppage.AddScriptToEvaluateOnNewDocumentParams{Source: script})
	p.must("preparing the tab", err)
}

// NoteDrawing makes the documents that are opened from now on record their drawing on canvases.
func (p *Page) NoteDrawing() {
	p.t.Helper()
	p.Prepare(canvas)
}

// Text represents one that was drawn on a canvas, and its box in the canvas's own pixels.
type Text struct {
	Text                     string
	Left, Right, Top, Bottom float64
}

// Canvas holds a canvas of the page, its size, and the texts of its last frame.
type Canvas struct {
	Width, Height float64
	Texts         []Text
}

// Drawn returns the contents of the canvases with a selector. It needs NoteDrawing.
func (p *Page) Drawn(selector string) []Canvas {
	p.t.Helper()
	return Value[[]Canvas](p, "[...document.querySelectorAll("+quoted(selector)+`)].map(c=>({Width:c.width,Height:c.height,
		Texts:(__drawn.texts.get(c)?.texts??[]).map(t=>({Text:t.text,Left:t.left,Right:t.right,Top:t.top,Bottom:t.bottom}))}))`)
}

// FirstDrawn returns after how many milliseconds a text was drawn first, counted from when the page
// was opened; 0: never. It needs NoteDrawing.
func (p *Page) FirstDrawn() float64 {
	p.t.Helper()
	return Value[float64](p, "__drawn.first")
}

// Frame holds one of a canvas that moves: milliseconds since the one before, those in which the
// main thread was busy with it, and the calls that draw.
type Frame struct{ Interval, Busy, Calls float64 }

// Frames draws so many frames, in each of which a function of JavaScript, given the number of
// the frame, moves something. It needs NoteDrawing.
func (p *Page) Frames(count int, step string) []Frame {
	p.t.Helper()
	n, _ := json.Marshal(count) // of an integer: no error
	return Value[[]Frame](p, "__drawn.measure("+string(n)+","+step+").then(all=>all.map(f=>({Interval:f.interval,Busy:f.busy,Calls:f.calls})))")
}

// Quantile returns that of a figure of frames, 0.5 for the median and 1 for the worst.
func Quantile(frames []Frame, value func(Frame) float64, q float64) float64 {
	values := make([]float64, 0, len(frames))
	for _, frame := range frames {
		values = append(values, value(frame))
	}
	slices.Sort(values)
	if len(values) == 0 {
		return 0
	}
	return values[min(len(values)-1, int(q*float64(len(values))))]
}

// Received counts the bytes that the tab receives from now on, in the bodies of answers.
func (p *Page) Received() *atomic.Int64 {
	p.t.Helper()
	var received atomic.Int64
	p.must("counting the received bytes", chromedp.Listen(p.ctx, func(event any) {
		if e, ok := event.(*network.EventDataReceived); ok {
			received.Add(e.DataLength)
		}
	}))
	_, err := chromedp.Call(p.ctx, network.Enable, network.EnableParams{})
	p.must("counting the received bytes", err)
	return &received
}

// Back goes back to the page before.
func (p *Page) Back() {
	p.t.Helper()
	p.Run("history.back()")
}

// Forward goes forward again.
func (p *Page) Forward() {
	p.t.Helper()
	p.Run("history.forward()")
}

// Location returns the address in the address bar.
func (p *Page) Location() string {
	p.t.Helper()
	return Value[string](p, "location.href")
}

// PictureOf writes the visible part of an element to a file, as PNG.
func (p *Page) PictureOf(selector, path string) {
	p.t.Helper()
	p.write(path, run(p, "taking a picture", chromedp.Screenshot(chromedp.CSS(selector))))
}
