package pages

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// Link represents a reference from a document to another place.
type Link struct {
	Line   int
	Target string
}

var (
	// inline matches [text](target) and ![text](target); the part after a blank is a title.
	inline = regexp.MustCompile(`[^\\]\]\(\s*<?([^)\s>]+)>?[^)]*\)`)
	// definition matches [name]: target.
	definition = regexp.MustCompile(`^ {0,3}\[[^\]]+\]:\s+(\S+)`)
	attribute  = regexp.MustCompile(`<(?:a|img)\b[^>]*\b(?:href|src)="([^"]+)"`)
	code       = regexp.MustCompile("`[^`]*`")
	heading    = regexp.MustCompile(`^#{1,6}\s+(.*?)\s*#*$`)
	anchored   = regexp.MustCompile(`<a\b[^>]*\b(?:id|name)="([^"]+)"`)
	linked     = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
)

// prose calls visit for each line that is not in a block, with its number from 1.
func (p *Page) prose(visit func(number int, line string)) {
	within := false
	for i, line := range p.Lines() {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			within = !within
		} else if !within {
			visit(i+1, line)
		}
	}
}

// Links returns all links of the document. A link whose text is broken over two lines is found at
// the line of its target.
func (p *Page) Links() []Link {
	var found []Link
	p.prose(func(number int, line string) {
		line = code.ReplaceAllString(line, "``")
		for _, pattern := range []*regexp.Regexp{inline, definition, attribute} {
			for _, match := range pattern.FindAllStringSubmatch(line, -1) {
				found = append(found, Link{Line: number, Target: match[1]})
			}
		}
	})
	return found
}

// Anchors returns the names by which parts of the document can be linked to, as GitHub makes them.
func (p *Page) Anchors() map[string]bool {
	anchors := map[string]bool{}
	p.prose(func(_ int, line string) {
		for _, match := range anchored.FindAllStringSubmatch(line, -1) {
			anchors[match[1]] = true
		}
		match := heading.FindStringSubmatch(line)
		if match == nil {
			return
		}
		name := slug(match[1])
		for n := 0; anchors[name]; n++ {
			name = fmt.Sprintf("%s-%d", slug(match[1]), n+1)
		}
		anchors[name] = true
	})
	return anchors
}

// slug returns the anchor of a heading.
func slug(title string) string {
	title = linked.ReplaceAllString(title, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		case r == ' ':
			return '-'
		}
		return -1
	}, title)
}
