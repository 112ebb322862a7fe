package ui

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/framework/browser"
	"github.com/cadastre-dev/cadastre/test/framework/viewer"
	"github.com/cadastre-dev/cadastre/test/perf/bench/document"
	"github.com/cadastre-dev/cadastre/test/perf/bench/figures"
)

const (
	// frames are drawn for each figure of frames.
	frames = 240
	// few are enough to count.
	few = 60
	// desk is the window.
	width, height = 1400, 900
	mib           = 1 << 20
	// pageTimeout bounds the wait for a page with the largest register.
	pageTimeout = 3 * time.Minute
)

// whenReady makes the page record when it was in step with the cluster first, in milliseconds since
// it was opened.
const whenReady = `window.__ready=0;addEventListener('DOMContentLoaded',()=>{const sign=document.querySelector('#sign')
if(sign)new MutationObserver(()=>{if(sign.dataset.phase==='live')window.__ready||=performance.now()}).observe(sign,{attributes:true})})`

// move is a turn of the wheel above the map in each frame: sideways it pans, and else it zooms
// in and out again.
const move = `(()=>{const c=document.querySelector('#maps canvas')??document.body,b=c.getBoundingClientRect()
return (n)=>c.dispatchEvent(new WheelEvent('wheel',{%s,clientX:b.x+b.width/4,clientY:b.y+b.height/2,bubbles:true,cancelable:true}))})()`

// measurement holds the measurements of a page.
type measurement struct {
	blocks int
	// first and ready are in milliseconds since the page was opened, with a command that was
	// started just before; again with one that has read the register.
	first, ready, firstAgain, readyAgain float64
	pan, panPool, zoom                   []browser.Frame
	heap, received                       float64
	command                              int
}

// count returns how many frames are drawn for a figure.
func count() int {
	if testing.Short() {
		return few
	}
	return frames
}

// TestPageLoadsQuickly opens the page with registers of several sizes, up to $RECORDS. It asserts
// counts: times are written to the file $UI_FIGURES, and a picture of the largest into the
// directory $UI_PICTURES.
func TestPageLoadsQuickly(t *testing.T) {
	sizes := []int{1_000, 10_000, suite.Setting(t, "RECORDS", 100_000, strconv.Atoi)}
	if testing.Short() {
		sizes = []int{500, 4_000}
	}
	b, plugin := browser.Start(t), viewer.Build(t)
	w := load(t)
	empty := w.empty(t, b)
	all := []measurement{empty}
	for _, blocks := range sizes {
		w.grow(blocks)
		t.Run(fmt.Sprintf("%d blocks", blocks), func(t *testing.T) { all = append(all, w.look(t, b, plugin)) })
	}
	for _, one := range all[1:] {
		one.check(t, empty, all[1])
	}
	if path := os.Getenv("UI_FIGURES"); path != "" {
		suite.Must(t, os.WriteFile(path, []byte(markdown(all)), 0o644))
	}
}

// empty measures a page that has nothing.
func (w *world) empty(t *testing.T, b *browser.Browser) measurement {
	t.Helper()
	p := b.Open(t, "about:blank", browser.Look{Width: width, Height: height})
	p.NoteDrawing()
	p.Go("data:text/html,<!doctype html><title>Empty</title><canvas></canvas>")
	nothing := p.Frames(count(), "()=>{}")
	return measurement{pan: nothing, panPool: nothing, zoom: nothing, heap: p.Heap()}
}

// look measures the page with the register as it is.
func (w *world) look(t *testing.T, b *browser.Browser, plugin string) measurement {
	t.Helper()
	v := viewer.Start(t, plugin, viewer.Kubeconfig(t, w.Config(), "bench", "default"))
	s := measurement{blocks: w.records}
	t.Run("at first", func(t *testing.T) { // the page is closed before it is opened again
		p, _ := w.open(t, b, v)
		s.first, s.ready = p.FirstDrawn(), browser.Value[float64](p, "__ready")
	})
	p, received := w.open(t, b, v)
	s.firstAgain, s.readyAgain = p.FirstDrawn(), browser.Value[float64](p, "__ready")
	s.received = float64(received())
	s.pan = p.Frames(count(), fmt.Sprintf(move, "deltaX:n%60<30?6:-6"))
	s.zoom = p.Frames(count(), fmt.Sprintf(move, "deltaY:n%60<30?-60:60"))
	p.Type("#find", site(pools/2))
	p.Press("\r")
	p.AwaitText("#panel-title", site(pools/2))
	p.Run("await new Promise(done=>setTimeout(done,1000))") // until the map is drawn
	s.panPool = p.Frames(count(), fmt.Sprintf(move, "deltaX:n%60<30?6:-6"))
	s.heap, s.command = p.Heap(), v.Memory(t)
	if dir := os.Getenv("UI_PICTURES"); dir != "" && w.records >= 100_000 {
		w.picture(p, filepath.Join(dir, "ui-100000.png"))
	}
	if said := p.Errors(); len(said) > 0 {
		t.Errorf("the browser complains: %q", said)
	}
	return s
}

// open opens the page, and waits until it is in step with the cluster.
func (w *world) open(t *testing.T, b *browser.Browser, v *viewer.Viewer) (*browser.Page, func() int64) {
	t.Helper()
	p := b.Open(t, "about:blank", browser.Look{Width: width, Height: height})
	p.NoteDrawing()
	p.Prepare(whenReady)
	received := p.Received()
	p.Go(v.Address)
	testWorld := w.For(t)
	testWorld.Patience = pageTimeout
	testWorld.Await("the page is in step", func(context.Context) bool { return browser.Value[bool](p, "window.__ready>0&&__drawn.first>0") })
	return p, received.Load
}

// picture shows all pools, with one of them in the details.
func (w *world) picture(p *browser.Page, path string) {
	p.Look(browser.Look{Width: 1360, Height: 860, Still: true})
	p.Click("#zoom-all")
	p.Run("document.activeElement.blur();await new Promise(done=>setTimeout(done,1500))")
	p.Picture(path)
}

// check compares the counts with their bounds.
func (s measurement) check(t *testing.T, empty, smallest measurement) {
	t.Helper()
	perBlock := (s.heap - smallest.heap) / float64(max(s.blocks-smallest.blocks, 1))
	t.Logf("%d blocks: first picture after %.0f ms (again %.0f ms), all after %.0f ms (again %.0f ms), %.1f MB received; heap %.1f MiB (empty page %.1f), %.0f bytes for each more block; the command takes %.0f MiB",
		s.blocks, s.first, s.firstAgain, s.ready, s.readyAgain, s.received/1e6, s.heap/mib, empty.heap/mib, perBlock, float64(s.command)/mib)
	for name, moved := range map[string][]browser.Frame{"panning": s.pan, "zooming": s.zoom, "panning in a pool": s.panPool} {
		usual, worst := browser.Quantile(moved, calls, 0.5), browser.Quantile(moved, calls, 1)
		t.Logf("%d blocks, %s: %s; %.0f calls that draw, %.0f at most", s.blocks, name, described(moved), usual, worst)
		if usual < 20 {
			t.Errorf("%d blocks, %s: a frame takes %.0f calls that draw: nothing moves", s.blocks, name, usual)
		}
		if most := float64(4 * width); worst > most {
			t.Errorf("%d blocks, %s: a frame takes %.0f calls that draw, want %.0f at most, however many blocks there are", s.blocks, name, worst, most)
		}
	}
	if most := 4096.0; perBlock > most {
		t.Errorf("each block takes %.0f bytes of the page's heap, want %.0f at most", perBlock, most)
	}
	if most := 600.0 * float64(s.blocks+1000); s.received > most {
		t.Errorf("%.0f bytes were received for %d blocks, want %.0f at most", s.received, s.blocks, most)
	}
}

func interval(f browser.Frame) float64 { return f.Interval }
func busy(f browser.Frame) float64     { return f.Busy }
func calls(f browser.Frame) float64    { return f.Calls }

// described returns the figures of frames: the time between them, and that of the main thread.
func described(moved []browser.Frame) string {
	three := func(value func(browser.Frame) float64) string {
		return fmt.Sprintf("%.1f / %.1f / %.1f", browser.Quantile(moved, value, 0.5), browser.Quantile(moved, value, 0.95), browser.Quantile(moved, value, 1))
	}
	return three(interval) + " ms between frames, " + three(busy) + " ms of work (median / p95 / worst)"
}

// markdown returns the text for docs/benchmarks.md.
func markdown(all []measurement) string {
	m := figures.ThisMachine()
	head := []string{"", "an empty page"}
	for _, s := range all[1:] {
		head = append(head, strconv.Itoa(s.blocks)+" blocks")
	}
	row := func(name string, cell func(measurement) string) []string {
		cells := []string{name}
		for _, s := range all {
			cells = append(cells, cell(s))
		}
		return cells
	}
	later := func(form string, value func(measurement) float64) func(measurement) string {
		return func(s measurement) string {
			if s.blocks == 0 {
				return ""
			}
			return fmt.Sprintf(form, value(s))
		}
	}
	three := func(name string, moved func(measurement) []browser.Frame, value func(browser.Frame) float64) []string {
		return row(name, func(s measurement) string {
			f := moved(s)
			return fmt.Sprintf("%.1f / %.1f / %.1f", browser.Quantile(f, value, 0.5), browser.Quantile(f, value, 0.95), browser.Quantile(f, value, 1))
		})
	}
	var rows [][]string
	rows = append(rows,
		row("first picture, command just started, ms", later("%.0f", func(s measurement) float64 { return s.first })),
		row("everything shown, command just started, ms", later("%.0f", func(s measurement) float64 { return s.ready })),
		row("first picture, opened again, ms", later("%.0f", func(s measurement) float64 { return s.firstAgain })),
		row("everything shown, opened again, ms", later("%.0f", func(s measurement) float64 { return s.readyAgain })),
		row("received, MB", later("%.1f", func(s measurement) float64 { return s.received / 1e6 })),
	)
	for _, motion := range []struct {
		name  string
		moved func(measurement) []browser.Frame
	}{
		{"panning over all pools", func(s measurement) []browser.Frame { return s.pan }},
		{"zooming in and out", func(s measurement) []browser.Frame { return s.zoom }},
		{"panning in one pool", func(s measurement) []browser.Frame { return s.panPool }},
	} {
		rows = append(rows, three(motion.name+", ms between frames", motion.moved, interval), three(motion.name+", ms of work in a frame", motion.moved, busy))
	}
	rows = append(rows,
		row("heap of the page, MiB", func(s measurement) string { return fmt.Sprintf("%.1f", s.heap/mib) }),
		row("memory of the command, MiB", later("%.0f", func(s measurement) float64 { return float64(s.command) / mib })),
	)
	return fmt.Sprintf(`## The page

The page of `+"`kubectl ipam ui`"+` in a headless Chromium with a window of %d × %d pixels, by how many blocks the register
has, in %d pools; beside it an empty page in the same browser and the same run. The machine has no GPU: all pixels are
painted by the CPU, which the API server, the command and the browser share: %s CPUs (%s), %s. The
figures of frames are median / p95 / worst of %d frames in each of which the wheel turns: the time between frames is 16.7 ms
at 60 frames a second, and the work is the main thread's. `+"`make bench-ui`"+` generates this part again.

`, width, height, pools, cmp.Or(strconv.Itoa(m.CPUs), "some"), m.CPU, m.Platform, frames) + document.Table(head, 1, rows)
}
