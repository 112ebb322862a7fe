package pages

import (
	"regexp"
	"slices"
	"strings"
)

// Step holds a command of a console block, and its output.
type Step struct {
	// Command is the typed command, without the "$ " and, in later lines, without the "> ".
	Command string
	// Typed holds the lines as the document has them.
	Typed string
	// Output is the output in the document.
	Output string
}

// heredoc begins a here-document.
var heredoc = regexp.MustCompile(`<<-?\s*['"]?(\w+)['"]?`)

// Steps returns the commands of a console block. A command continues in the next line after a
// backslash, until the end of a here-document, and in lines that begin with "> ".
func Steps(text string) []Step {
	var steps []Step
	end := "" // of the here-document
	open := false
	for line := range strings.Lines(text) {
		bare := strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(bare, "$ ") && end == "":
			steps = append(steps, Step{Command: strings.TrimPrefix(bare, "$ ") + "\n", Typed: line})
		case len(steps) == 0:
			steps = append(steps, Step{Output: line})
			continue
		case open, end != "", strings.HasPrefix(bare, "> "):
			last := &steps[len(steps)-1]
			bare = strings.TrimPrefix(bare, "> ")
			last.Command += bare + "\n"
			last.Typed += line
		default:
			steps[len(steps)-1].Output += line
			continue
		}
		if match := heredoc.FindStringSubmatch(bare); match != nil && end == "" {
			end = match[1]
		} else if bare == end {
			end = ""
		}
		open = strings.HasSuffix(bare, "\\")
	}
	return steps
}

// Fits reports whether the output of a command fits the document: it is the same but for the parts
// that differ from run to run; a line "..." stands for any number of lines. If names end at random
// the order of the lines does not count: kubectl sorts by names.
func Fits(documented, printed string) bool {
	want, got := lines(documented), lines(printed)
	if strings.Contains(Normal(documented), random) && !slices.Contains(want, "...") {
		slices.Sort(want)
		slices.Sort(got)
	}
	return fits(want, got)
}

func lines(text string) []string {
	var all []string
	for line := range strings.Lines(Normal(text)) {
		if line = strings.TrimRight(line, " \n"); line != "" {
			all = append(all, line)
		}
	}
	return all
}

func fits(documented, printed []string) bool {
	for i, line := range documented {
		if strings.TrimSpace(line) == "..." {
			for from := i; from <= len(printed); from++ {
				if fits(documented[i+1:], printed[from:]) {
					return true
				}
			}
			return false
		}
		if i >= len(printed) || printed[i] != line {
			return false
		}
	}
	return len(documented) == len(printed)
}

// random stands for the end of a name.
const random = "<random>"

// age is a time as people read it: 5m30s, 3d.
const age = `(?:\d+[dhm])?\d+[smhd]`

// replacement holds a text that differs from run to run, and its placeholder.
type replacement struct {
	pattern *regexp.Regexp
	instead string
}

//nolint:gochecknoglobals // a constant but for its type
var varying = []replacement{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "<uid>"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "<time>"},
	{regexp.MustCompile(`https://127\.0\.0\.1:\d+`), "https://<server>"},
	// The end of a connection.
	{regexp.MustCompile(`(Post "https://[^"]+"): .+?(: see whether|\n)`), "$1: <why>$2"},
	{regexp.MustCompile(`\.svc:\d+`), ".svc:<port>"},
	// Of a manager, from its lease.
	{regexp.MustCompile(`[a-zA-Z0-9.-]+_<uid>`), "<host>_<uid>"},
	{regexp.MustCompile(`(?m)^(operator:? +)(?:devel|v\d\S*)$`), "$1<version>"},
	// Record names end with 8 random characters.
	{regexp.MustCompile(`\b([a-z0-9.]+(?:-[a-z0-9.]+)*)-[bcdfghjklmnpqrstvwxz2456789]{8}\b`), "$1-" + random},
	// Those of claims that existed end with a digest of their UID.
	{regexp.MustCompile(`\b(ipallocation/[a-z0-9.-]+)-[a-z2-7]{8}\b`), "$1-" + random},
	// Ages: in parentheses, of blocks that are retained or cool down, and in columns, with the
	// spaces that pad them. A time that was typed, such as that of --wait=20s, is none.
	{regexp.MustCompile(`\(` + age + `\)`), "(<age>)"},
	{regexp.MustCompile(`, ` + age + ` +left\b`), ", <age> left"},
	{regexp.MustCompile(`( {2,})` + age + ` +(\S)`), "$1<age>   $2"},
	{regexp.MustCompile(`(?m)( {2,})` + age + `$`), "$1<age>"},
}

// Transcript replaces the parts that differ from run to run, such as ages, UIDs and random names,
// in the output of commands.
func Transcript(text string) string {
	for _, v := range varying {
		text = v.pattern.ReplaceAllString(text, v.instead)
	}
	return text
}

// gaps matches the spaces between columns, whose number depends on the longest cell.
var gaps = regexp.MustCompile(` {2,}`)

// Normal returns a Transcript with the same distance between columns for all contents.
func Normal(text string) string { return gaps.ReplaceAllString(Transcript(text), "  ") }
