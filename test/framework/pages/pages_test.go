package pages

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

const example = "# A\n" +
	"<!-- run by TestA -->\n" +
	"```sh\ntrue\n```\n" +
	"- in a list\n" +
	"  <!-- not run: takes\n  a Pod -->\n" +
	"\n" +
	"  ```console\n  $ a\n  b\n  ```\n" +
	"<!-- run:\necho 1\necho 2 -->\n" +
	"<!-- begin table -->\n" +
	"<!-- not run: marks nothing -->\n" +
	"text\n" +
	"<!-- not-run: wrong -->\n" +
	"<!-- not run: -->\n" +
	"```yaml\na: b\n```\n" +
	"```\nnever ends\n"

func TestParse(t *testing.T) {
	page := Parse("a.md", example)
	want := &Page{
		Path: "a.md", Text: example, RunBy: "TestA",
		Blocks: []*Block{
			{Line: 3, Language: "sh", Text: "true\n"},
			{Line: 10, Language: "console", Indent: "  ", Text: "$ a\nb\n", Marked: true, NotRun: "takes a Pod"},
			{Line: 14, Language: "sh", Text: "echo 1\necho 2\n", Hidden: true},
			{Line: 22, Language: "yaml", Text: "a: b\n", Marked: true},
			{Line: 25, Text: "never ends\n"},
		},
		Mistakes: []string{
			"a.md:18: this marker does not stand right above a block",
			"a.md:20: this is none of the comments that control runs of blocks",
			"a.md:21: this marker has no reason, test or command",
			"a.md:25: this block does not end",
		},
	}
	if diff := cmp.Diff(want, page); diff != "" {
		t.Error(diff)
	}
}

func TestReplace(t *testing.T) {
	page := Parse("a.md", "```sh\n1\n```\n  ```sh\n  2\n  3\n  ```\nend\n")
	got := page.Replace(map[*Block]string{page.Blocks[0]: "4\n5\n", page.Blocks[1]: "6\n"})
	if want := "```sh\n4\n5\n```\n  ```sh\n  6\n  ```\nend\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestSteps(t *testing.T) {
	got := Steps("$ a \\\n  b\nout\n$ c <<END\n$ not a command\nEND\n$ d\n> e\nout\nmore\n")
	want := []Step{
		{Command: "a \\\n  b\n", Typed: "$ a \\\n  b\n", Output: "out\n"},
		{Command: "c <<END\n$ not a command\nEND\n", Typed: "$ c <<END\n$ not a command\nEND\n"},
		{Command: "d\ne\n", Typed: "$ d\n> e\n", Output: "out\nmore\n"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestFits(t *testing.T) {
	for name, c := range map[string]struct {
		documented, printed string
		want                bool
	}{
		"the same":                            {"a\nb\n", "a\nb\n", true},
		"another line":                        {"a\nb\n", "a\nc\n", false},
		"a line more":                         {"a\n", "a\nb\n", false},
		"a line less":                         {"a\nb\n", "a\n", false},
		"ages and the width of columns":       {"NAME   AGE\na      2s\n", "NAME    AGE\na       12m\n", true},
		"a name that ends at random":          {"web-bcdfghjk  10.0.0.1\n", "web-z2456789  10.0.0.1\n", true},
		"names that end at random, sorted":    {"NAME\na-bcdfghjk\na-b-bcdfghjk\n", "NAME\na-b-z2456789\na-z2456789\n", true},
		"names that end at random, one more":  {"NAME\na-bcdfghjk\n", "NAME\na-z2456789\na-bbbbbbbb\n", false},
		"other lines in another order":        {"a\nb\n", "b\na\n", false},
		"another block":                       {"web-bcdfghjk  10.0.0.1\n", "web-z2456789  10.0.0.2\n", false},
		"dots for lines before":               {"...\nb\n", "x\ny\nb\n", true},
		"dots for none":                       {"...\nb\n...\n", "b\n", true},
		"dots between":                        {"a\n...\nb\n", "a\nx\nb\n", true},
		"dots, and the line after is missing": {"a\n...\nb\n", "a\nx\n", false},
		"dots, and more follows":              {"...\nb\n", "b\nx\n", false},
	} {
		if got := Fits(c.documented, c.printed); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}
