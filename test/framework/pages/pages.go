// Package pages reads the documents: their code blocks, links and headings; and runs the commands
// of the blocks in a shell.
//
// The language of a block determines how it is run:
//
//	sh       a script, which must succeed
//	console  commands after "$ ", each followed by its output; a line "..." stands for any
//	         number of lines
//	hcl      nothing runs it: it must be marked
//	yaml     objects, which are applied; with the first line "# NAME.yaml" the block is a file
//	         of that name, which later commands of the page apply
//
// and so do comments of HTML, which readers do not see:
//
//	<!-- not run: REASON -->   above a block: it is not run
//	<!-- run by TestX -->      on a page: the blocks of the page are run by that test
//	<!-- run:                  commands that prepare or tidy up, run in their place
//	COMMANDS -->
package pages

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Page represents one document.
type Page struct {
	// Path is relative to the root of the module.
	Path string
	// RunBy is the test that runs the page's blocks in place of the suite of documents.
	RunBy  string
	Blocks []*Block
	Text   string
	// Mistakes holds the markers that mark nothing or lack a part, with their lines.
	Mistakes []string
}

// Block represents a fenced code block, or commands in a comment.
type Block struct {
	// Line is the line of the fence that begins it, from 1.
	Line     int
	Language string
	// Indent is the beginning of each line, as in a list.
	Indent string
	// Text is without the indent.
	Text string
	// Marked means that it is marked as not run, for the reason in NotRun.
	Marked bool
	NotRun string
	// Hidden means that it is a comment.
	Hidden bool
}

// Runs reports whether a language is one of blocks that are run.
func Runs(language string) bool {
	return slices.Contains([]string{"sh", "console", "yaml", "hcl"}, language)
}

// All reads all documents of the module, in order of their paths.
func All(root string) ([]*Page, error) {
	var paths []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || slices.Contains([]string{"bin", "out", "node_modules"}, entry.Name())):
			return filepath.SkipDir
		case filepath.Ext(path) == ".md":
			paths = append(paths, path)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	all := make([]*Page, len(paths))
	for i, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return nil, err
		}
		all[i] = Parse(filepath.ToSlash(relative), string(text))
	}
	return all, nil
}

// Read reads one document of the module.
func Read(root, path string) (*Page, error) {
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		return nil, err
	}
	return Parse(path, string(text)), nil
}

// Lines returns the lines of the document, without their ends.
func (p *Page) Lines() []string {
	return strings.Split(strings.TrimSuffix(p.Text, "\n"), "\n")
}

// Replace returns the document with other texts in some of its blocks.
func (p *Page) Replace(texts map[*Block]string) string {
	lines := p.Lines()
	for _, block := range slices.Backward(p.Blocks) {
		text, ok := texts[block]
		if !ok {
			continue
		}
		var body []string
		for line := range strings.Lines(text) {
			body = append(body, strings.TrimRight(block.Indent+strings.TrimSuffix(line, "\n"), " "))
		}
		lines = slices.Replace(lines, block.Line, block.Line+strings.Count(block.Text, "\n"), body...)
	}
	return strings.Join(lines, "\n") + "\n"
}
