package collector

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Spans holds the spans of one or more traces.
type Spans []Span

// Of returns the first span of a service with that name, whose ancestors fit.
func (s Spans) Of(service, name string, below ...string) (Span, bool) {
	i := slices.IndexFunc(s, func(span Span) bool {
		return span.Service == service && span.Name == name && s.IsBelow(span, below...)
	})
	if i < 0 {
		return Span{}, false
	}
	return s[i], true
}

// IsBelow reports whether a span has ancestors of these names, the nearest first. Others may
// stand between them. A name may be that of the service and the span, with a blank between.
func (s Spans) IsBelow(span Span, names ...string) bool {
	for len(names) > 0 {
		i := slices.IndexFunc(s, func(other Span) bool { return other.ID == span.Parent && other.Trace == span.Trace })
		if i < 0 {
			return false
		}
		span = s[i]
		if span.Service+" "+span.Name == names[0] {
			names = names[1:]
		}
	}
	return true
}

// Picture holds the settings with which spans are drawn.
type Picture struct {
	// Passes reports whether a span is left out, and those below it drawn in its place.
	Passes func(Span) bool
	// Describe returns the text about a span.
	Describe func(Span) string
}

// line holds one span as it is drawn.
type line struct{ name, service, lasted, said string }

// Draw draws spans as text, each below its parent, in the order in which they began, with its
// service and its duration. The trace that is linked to a span is drawn below it, behind an
// arrow.
func (p Picture) Draw(spans Spans) string {
	ids := map[string]bool{}
	for _, span := range spans {
		ids[span.ID] = true
	}
	return align(p.lines(spans, "", func(span Span) bool { return !ids[span.Parent] && len(span.Links) == 0 }))
}

// lines returns the lines of the spans that fit, and of all below them.
func (p Picture) lines(spans Spans, indent string, fit func(Span) bool) (lines []line) {
	for _, span := range spans {
		if !fit(span) {
			continue
		}
		deeper := indent
		if !p.Passes(span) {
			lines = append(lines, line{indent + span.Name, span.Service, span.Lasted().Round(10 * time.Microsecond).String(), p.Describe(span)})
			deeper += "  "
		}
		lines = append(lines, p.lines(spans, deeper, func(child Span) bool { return child.Parent == span.ID && child.Trace == span.Trace })...)
		linked := p.lines(spans, deeper, func(other Span) bool { return slices.Contains(other.Links, span.ID) })
		if len(linked) > 0 {
			linked[0].name = strings.TrimSuffix(deeper, "  ") + "→ " + strings.TrimLeft(linked[0].name, " ")
		}
		lines = append(lines, linked...)
	}
	return lines
}

// align returns the lines as text, with their columns aligned.
func align(lines []line) string {
	name, service, lasted := 0, 0, 0
	for _, l := range lines {
		name, service, lasted = max(name, utf8.RuneCountInString(l.name)), max(service, len(l.service)), max(lasted, utf8.RuneCountInString(l.lasted))
	}
	var text strings.Builder
	for _, l := range lines {
		text.WriteString(strings.TrimRight(fmt.Sprintf("%-*s  %-*s %*s  %s", name, l.name, service, l.service, lasted, l.lasted, l.said), " ") + "\n")
	}
	return text.String()
}
