package mutants

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Report holds the results of a run.
type Report struct {
	// Commit is the judged commit and Of the number of its mutants. Chosen is the number of
	// mutants to judge, which Seed drew.
	Commit  string
	Of      int
	Chosen  int
	Seed    uint64
	Results []Result
}

// Explanations holds the reasons why no test can notice a mutant, or why none must, by Mutant.Key.
type Explanations map[string]string

// ReadExplanations reads a file in which each mutant is on a line, with the explanation on
// the lines after it, which are indented. It skips lines that begin with #.
func ReadExplanations(file string) (Explanations, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	all, key := Explanations{}, ""
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		text := strings.TrimSpace(line)
		switch {
		case text == "", strings.HasPrefix(line, "#"):
		case text == line:
			key = text
			all[key] = ""
		case key == "":
			return nil, fmt.Errorf("%s: %q explains no mutant", file, text)
		default:
			all[key] = strings.TrimSpace(all[key] + " " + text)
		}
	}
	for key, why := range all {
		if why == "" {
			return nil, fmt.Errorf("%s: %q is not explained", file, key)
		}
	}
	return all, nil
}

// Write writes the report into a file, in one step. ReadReport reads the file.
func (r *Report) Write(file string) error {
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", content, 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// Continues reports whether this run, which has no results yet, can continue the run of the report
// before: that run was cut off, and is otherwise the same. If so, Continues takes over its results
// and its seed.
func (r *Report) Continues(before *Report) bool {
	if strings.HasSuffix(r.Commit, "-dirty") || before.Commit != r.Commit || before.Of != r.Of || before.Chosen != r.Chosen ||
		r.Seed != 0 && r.Seed != before.Seed || len(before.Results) >= before.Chosen {
		return false
	}
	r.Seed, r.Results = before.Seed, before.Results
	return true
}

// Left returns the chosen mutants without a result in the report.
func (r *Report) Left(chosen []Mutant) []Mutant {
	judged := map[int]bool{}
	for _, result := range r.Results {
		judged[result.ID] = true
	}
	return slices.DeleteFunc(slices.Clone(chosen), func(m Mutant) bool { return judged[m.ID] })
}

// ReadReport reads a report that Write wrote.
func ReadReport(file string) (*Report, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := &Report{}
	return r, json.Unmarshal(content, r)
}

// tally counts results.
type tally struct{ all, noticed, explained, open int }

func (t tally) score() string {
	if t.all == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(t.noticed)/float64(t.all))
}

func (t *tally) count(r Result, why Explanations) {
	t.all++
	switch {
	case r.Outcome == Noticed || r.Outcome == Endless:
		t.noticed++
	case why[r.Key()] != "":
		t.explained++
	default:
		t.open++
	}
}

// Table writes the report as Markdown: the number of noticed mutants of each package.
func (r *Report) Table(to io.Writer, why Explanations) error {
	packages, total := map[string]*tally{}, tally{}
	for _, result := range r.Results {
		dir := path.Dir(result.File)
		if packages[dir] == nil {
			packages[dir] = &tally{}
		}
		packages[dir].count(result, why)
		total.count(result, why)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "`make mutants` of %s, ", r.Commit)
	if len(r.Results) < r.Of {
		fmt.Fprintf(&text, "%d of %d mutants by seed %d:\n\n", len(r.Results), r.Of, r.Seed)
	} else {
		fmt.Fprintf(&text, "all %d mutants:\n\n", r.Of)
	}
	text.WriteString("| package | mutants | noticed | | explained | open |\n|---|---|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		t := packages[name]
		fmt.Fprintf(&text, "| `%s` | %d | %d | %s | %d | %d |\n", name, t.all, t.noticed, t.score(), t.explained, t.open)
	}
	fmt.Fprintf(&text, "| all | %d | %d | **%s** | %d | %d |\n", total.all, total.noticed, total.score(), total.explained, total.open)
	_, err := io.WriteString(to, text.String())
	return err
}

// List writes the mutants that no test has noticed as Markdown, each with its explanation.
func (r *Report) List(to io.Writer, why Explanations) error {
	var text strings.Builder
	listed := map[string]bool{}
	for _, s := range r.Survivors() {
		if listed[s.Key()] { // one of several that are alike
			continue
		}
		listed[s.Key()] = true
		fmt.Fprintf(&text, "- `%s`, `%s`: `` %s `` → `` %s ``. %s\n", s.File, s.Function, s.Before, s.After, cmp.Or(why[s.Key()], "Not explained."))
	}
	_, err := io.WriteString(to, text.String())
	return err
}

// Survivors returns the mutants that no test has noticed, in the order of the source.
func (r *Report) Survivors() []Result {
	survivors := slices.DeleteFunc(slices.Clone(r.Results), func(r Result) bool { return r.Outcome == Noticed || r.Outcome == Endless })
	slices.SortFunc(survivors, func(a, b Result) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.ID, b.ID))
	})
	return survivors
}

// Stale returns the keys of explanations of mutants that do not exist any more, or that were
// noticed. It skips packages that exist but have no mutants in all.
func (r *Report) Stale(all []Mutant, why Explanations) []string {
	packages := map[string]bool{}
	for _, m := range all {
		packages[path.Dir(m.File)] = true
	}
	stale := maps.Clone(why)
	maps.DeleteFunc(stale, func(key, _ string) bool {
		file, _, _ := strings.Cut(key, " ")
		_, err := os.Stat(filepath.FromSlash(file))
		return err == nil && !packages[path.Dir(file)]
	})
	for _, m := range all {
		delete(stale, m.Key())
	}
	for _, result := range r.Results {
		if result.Outcome == Noticed && why[result.Key()] != "" {
			stale[result.Key()] = ""
		}
	}
	for _, survivor := range r.Survivors() { // one of several that are alike
		delete(stale, survivor.Key())
	}
	return slices.Sorted(maps.Keys(stale))
}
