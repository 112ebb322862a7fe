package pages

import (
	"fmt"
	"regexp"
	"strings"
)

// parser reads a document line by line.
type parser struct {
	page *Page
	// marker is the comment "not run" that waits for its block, nil if there is none.
	marker *marker
}

type marker struct {
	line   int
	reason string
}

var (
	fence   = regexp.MustCompile("^( *)```+ *([A-Za-z0-9_+-]*) *$")
	comment = regexp.MustCompile(`(?s)^<!--\s*(not run:|run:|run by )(.*?)\s*-->\s*$`)
	// word finds comments that were to be one of these and are written in another way.
	word = regexp.MustCompile(`^<!--\s*(not[ -]?run|run)\b`)
)

// Parse reads a document.
func Parse(path, text string) *Page {
	p := &parser{page: &Page{Path: path, Text: text}}
	lines := p.page.Lines()
	for i := 0; i < len(lines); i++ {
		switch line := lines[i]; {
		case fence.MatchString(line):
			i = p.block(lines, i)
		case strings.HasPrefix(strings.TrimSpace(line), "<!--"):
			i = p.comment(lines, i)
		case strings.TrimSpace(line) != "":
			p.unmarked()
		}
	}
	p.unmarked()
	return p.page
}

func (p *parser) mistake(line int, text string) {
	p.page.Mistakes = append(p.page.Mistakes, fmt.Sprintf("%s:%d: %s", p.page.Path, line, text))
}

// unmarked expects that no marker waits for its block.
func (p *parser) unmarked() {
	if p.marker != nil {
		p.mistake(p.marker.line, "this marker does not stand right above a block")
	}
	p.marker = nil
}

// block reads a block that begins at line i, and returns the line of its end.
func (p *parser) block(lines []string, i int) int {
	begin := fence.FindStringSubmatch(lines[i])
	block := &Block{Line: i + 1, Indent: begin[1], Language: begin[2]}
	if p.marker != nil {
		block.Marked, block.NotRun, p.marker = true, p.marker.reason, nil
	}
	var text strings.Builder
	for i++; i < len(lines) && strings.TrimSpace(lines[i]) != "```"; i++ {
		text.WriteString(strings.TrimPrefix(lines[i], block.Indent) + "\n")
	}
	if i == len(lines) {
		p.mistake(block.Line, "this block does not end")
	}
	block.Text = text.String()
	p.page.Blocks = append(p.page.Blocks, block)
	return i
}

// comment reads a comment that begins at line i, and returns the line of its end.
func (p *parser) comment(lines []string, i int) int {
	begin := i
	for !strings.Contains(lines[i], "-->") && i+1 < len(lines) {
		i++
	}
	text := strings.TrimSpace(strings.Join(lines[begin:i+1], "\n"))
	match := comment.FindStringSubmatch(text)
	if match == nil {
		if word.MatchString(text) {
			p.mistake(begin+1, "this is none of the comments that control runs of blocks")
		}
		return i
	}
	p.unmarked()
	said := strings.TrimSpace(match[2])
	if said == "" {
		p.mistake(begin+1, "this marker has no reason, test or command")
	}
	switch match[1] {
	case "not run:":
		p.marker = &marker{line: begin + 1, reason: strings.Join(strings.Fields(said), " ")}
	case "run by ":
		p.page.RunBy = said
	default:
		p.page.Blocks = append(p.page.Blocks, &Block{Line: begin + 1, Language: "sh", Text: said + "\n", Hidden: true})
	}
	return i
}
