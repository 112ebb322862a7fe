package mutants

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cadastre-dev/cadastre/internal/testing/must"
)

// module holds a small module, and the result of each of its mutants.
var module = map[string]string{
	"go.mod": "module example.com/small\n\ngo 1.26\n",
	"small.go": `package small

import "errors"

type Box[T any] struct{ items []T }

func (b *Box[T]) Put(item T) { b.items = append(b.items, item) }

func Most(a, b int) int {
	if a > b {
		return a
	}
	return b
}

func Check(n int) error {
	switch {
	case n < 0 && n != -1: // -1 is allowed
		return errors.New("negative")
	}
	return nil
}

func Sum(to int) (sum int) {
	for i := 1; i <= to; i++ {
		sum += i * Factor(i) / 1
	}
	return sum
}

func Factor(int) int { return 1 }

func Never() bool { return 1+1 == 3 || Most(1, 2) == 3 }

func Left(n int) (int, error) { say("alone"); return n, Check(n) }

func say(string) {}

func Logged(n int) int {
	logAll(n)
	if most := n + 1; most > 2 {
		say("much")
	}
	if n > 3 {
		say("too much")
		n = 3
	}
	return logged(n)
}

func logAll(n int) {
	if n > 1 {
		n--
	}
}

func logged(n int) int { return n * 1 }
`,
	"small_test.go": `package small

import "testing"

func TestMost(t *testing.T) {
	if Most(1, 2) != 2 || Most(2, 1) != 2 {
		t.Fatal()
	}
}

func TestMostIsCheap(t *testing.T) { t.Fatal("with mutants it takes too long") }

func TestCheck(t *testing.T) {
	if Check(-2) == nil || Check(-1) != nil || Check(1) != nil {
		t.Fatal()
	}
}

func TestSum(t *testing.T) {
	if Sum(3) != 6 {
		t.Fatal()
	}
	(&Box[int]{}).Put(1)
}

func TestLeft(t *testing.T) { Left(1) }
`,
}

// measured returns the mutants of a module, except calls of skipped functions, and its tests.
func measured(t *testing.T, files map[string]string, skip ...string) ([]Mutant, []Test) {
	t.Helper()
	dir, scratch := t.TempDir(), t.TempDir()
	for name, content := range files {
		must.Succeed(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	code, err := Instrument(dir, skip, "./...")
	must.Succeed(t, err)
	binaries, err := code.Build(t.Context(), dir, scratch, "./...")
	must.Succeed(t, err)
	tests, err := Measure(t.Context(), binaries, scratch, NewPlaces(nil, nil))
	must.Succeed(t, err)
	return code.Mutants, tests
}

func TestMutantsAreJudged(t *testing.T) {
	mutants, tests := measured(t, module, "example.com/small.say")
	resultCount := 0
	got := map[string]Outcome{}
	Run(t.Context(), mutants, tests, NewPlaces(nil, nil), func(r Result) {
		resultCount++
		got[r.Function+": "+r.Before+" → "+r.After] = r.Outcome
	})
	want := map[string]Outcome{
		"Box.Put: b.items = append(b.items, item) → nothing":                  Survived,
		"Most: a > b → !(a > b)":                                              Noticed,
		"Most: a > b → a >= b":                                                Survived,
		"Check: n < 0 && n != -1 → !(n < 0 && n != -1)":                       Noticed,
		"Check: n < 0 && n != -1 → n < 0 || n != -1":                          Noticed,
		"Check: n < 0 → n <= 0":                                               Survived,
		"Check: n != -1 → n == -1":                                            Noticed,
		`Check: return errors.New("negative") → return nil`:                   Noticed,
		"Sum: i <= to → i < to":                                               Noticed,
		"Sum: sum += i * Factor(i) / 1 → nothing":                             Noticed,
		"Sum: i * Factor(i) / 1 → i * Factor(i) * 1":                          Survived,
		"Sum: i * Factor(i) → i / Factor(i)":                                  Survived,
		"Never: 1+1 == 3 || Most(1, 2) == 3 → !(1+1 == 3 || Most(1, 2) == 3)": Unreached,
		"Never: 1+1 == 3 || Most(1, 2) == 3 → 1+1 == 3 && Most(1, 2) == 3":    Unreached,
		"Never: Most(1, 2) == 3 → Most(1, 2) != 3":                            Unreached,
		"Left: return Check(n) → return nil":                                  Survived,
		"Logged: n + 1 → n - 1":                                               Unreached,
		"Logged: n > 3 → !(n > 3)":                                            Unreached,
		"Logged: n > 3 → n >= 3":                                              Unreached,
		"Logged: n = 3 → nothing":                                             Unreached,
		"logged: n * 1 → n / 1":                                               Unreached,
	}
	if !maps.Equal(got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
	if resultCount != len(want) {
		t.Errorf("got %d results, want %d", resultCount, len(want))
	}
}

// TestEndlessMutantIsNoticed covers a loop that never ends if a statement is missing.
func TestEndlessMutantIsNoticed(t *testing.T) {
	mutants, tests := measured(t, map[string]string{
		"go.mod":       "module example.com/loop\n\ngo 1.26\n",
		"loop.go":      "package loop\n\nfunc Down(n int) int {\n\tfor n > 0 {\n\t\tn--\n\t}\n\treturn n\n}\n",
		"loop_test.go": "package loop\n\nimport \"testing\"\n\nfunc TestDown(t *testing.T) {\n\tif Down(3) != 0 {\n\t\tt.Fatal()\n\t}\n}\n",
	})
	endless := slices.DeleteFunc(mutants, func(m Mutant) bool { return m.Before != "n--" })
	var results []Result
	Run(t.Context(), endless, tests, NewPlaces(nil), func(r Result) { results = append(results, r) })
	if len(results) != 1 || results[0].Outcome != Endless || results[0].By != "TestDown" {
		t.Errorf("got %+v, want that it timed out", results)
	}
}

// TestExplainedMutantIsJudgedByItsPackage saves the time of the tests of all other packages.
func TestExplainedMutantIsJudgedByItsPackage(t *testing.T) {
	const test = "package PACKAGE\n\nimport (\n\t\"testing\"\n\n\t\"example.com/two/a\"\n)\n\nfunc TestNext(t *testing.T) {\n\tif a.Next(1) != WANT {\n\t\tt.Fatal()\n\t}\n}\n"
	mutants, tests := measured(t, map[string]string{
		"go.mod":      "module example.com/two\n\ngo 1.26\n",
		"a/a.go":      "package a\n\nfunc Next(n int) int { return n + 1 }\n",
		"a/a_test.go": strings.NewReplacer("PACKAGE", "a_test", "WANT", "a.Next(1)").Replace(test),
		"b/b.go":      "package b\n",
		"b/b_test.go": strings.NewReplacer("PACKAGE", "b", "WANT", "2").Replace(test),
	})
	for isExplained, want := range map[bool]Outcome{false: Noticed, true: Survived} {
		mutants[0].IsExplained = isExplained
		Run(t.Context(), mutants, tests, NewPlaces(nil), func(r Result) {
			if r.Outcome != want {
				t.Errorf("explained: %t: %s by %q, want %s", isExplained, r.Outcome, r.By, want)
			}
		})
	}
}

// TestSubtestsOfLongTestRunAlone covers also one with a subtest that looks like a part of its
// name.
func TestSubtestsOfLongTestRunAlone(t *testing.T) {
	for name, c := range map[string]struct {
		ran, parts []string
	}{
		"none":              {ran: []string{"TestA"}},
		"two":               {ran: []string{"TestA", "TestA/a+b", "TestA/c"}, parts: []string{"TestA/a+b", "TestA/c"}},
		"with their own":    {ran: []string{"TestA", "TestA/a", "TestA/a/x", "TestA/b"}, parts: []string{"TestA/a", "TestA/b"}},
		"one with a slash":  {ran: []string{"TestA", "TestA/10.0.0.0/8", "TestA/b"}},
		"one after another": {ran: []string{"TestA", "TestA/a", "TestA/a#01"}, parts: []string{"TestA/a", "TestA/a#01"}},
	} {
		var parts []string
		for _, part := range (&Test{Name: "TestA", ran: c.ran}).parts() {
			parts = append(parts, part.Name)
		}
		if !slices.Equal(parts, c.parts) {
			t.Errorf("%s: the parts are %q, want %q", name, parts, c.parts)
		}
	}
	if got, want := pattern([]string{"TestA/a+b", "TestA/c"}), `^TestA$/^(a\+b|c)$`; got != want {
		t.Errorf("they are run by %q, want %q", got, want)
	}
	if got, want := pattern([]string{"TestA", "TestB"}), `^(TestA|TestB)$`; got != want {
		t.Errorf("tests are run by %q, want %q", got, want)
	}
}

// TestInterruptedRunIsResumed covers a run at the same commit, with the same mutants.
func TestInterruptedRunIsResumed(t *testing.T) {
	all := []Mutant{{ID: 1}, {ID: 2}, {ID: 3}}
	before := &Report{Commit: "abc", Of: 9, Chosen: 3, Seed: 7, Results: []Result{{Mutant: all[1], Outcome: Noticed}}}
	for name, c := range map[string]struct {
		now  Report
		want bool
	}{
		"the same":          {Report{Commit: "abc", Of: 9, Chosen: 3}, true},
		"by its seed":       {Report{Commit: "abc", Of: 9, Chosen: 3, Seed: 7}, true},
		"by another seed":   {Report{Commit: "abc", Of: 9, Chosen: 3, Seed: 8}, false},
		"of another commit": {Report{Commit: "def", Of: 9, Chosen: 3}, false},
		"of other packages": {Report{Commit: "abc", Of: 8, Chosen: 3}, false},
		"of a sample":       {Report{Commit: "abc", Of: 9, Chosen: 2}, false},
	} {
		if got := c.now.Continues(before); got != c.want || got && (c.now.Seed != 7 || len(c.now.Left(all)) != 2) {
			t.Errorf("%s: it goes on: %t, want %t, with %+v", name, got, c.want, c.now)
		}
	}
	before.Results = make([]Result, 3)
	if (&Report{Commit: "abc", Of: 9, Chosen: 3}).Continues(before) {
		t.Error("a run that is complete is gone on with")
	}
	before = &Report{Commit: "abc-dirty", Of: 9, Chosen: 3}
	if (&Report{Commit: "abc-dirty", Of: 9, Chosen: 3}).Continues(before) {
		t.Error("it goes on although the code can have changed")
	}
}

func TestQuickTestsComeFirstAndThoseThatNoticedTheLastMutant(t *testing.T) {
	reaches := map[int]bool{1: true}
	tests := []Test{
		{Binary: Binary{Path: "a"}, Name: "TestStory", Took: 9 * time.Second, Reaches: reaches}, {Binary: Binary{Path: "a"}, Name: "TestSlow", Took: time.Second, Reaches: reaches},
		{Binary: Binary{Path: "a"}, Name: "TestOther", Took: time.Millisecond},
	}
	for _, letter := range "abcdefgh" {
		tests = append(tests, Test{Binary: Binary{Path: "b", Package: "small"}, Name: "TestQuick/" + string(letter), Took: 200 * time.Millisecond, Reaches: reaches})
	}
	const together = "8 quick tests of small"
	for likely, want := range map[string][]string{
		"":          {together, "TestSlow", "TestStory"},
		"TestStory": {together, "TestStory", "TestSlow"},
		"TestSlow":  {"TestSlow", together, "TestStory"},
		"TestOther": {together, "TestSlow", "TestStory"},
	} {
		var got []string
		for _, g := range groupsOf(Mutant{ID: 1, File: "small/a.go"}, tests, likely) {
			got = append(got, g.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("after %q: got %q, want %q", likely, got, want)
		}
	}
}

func TestExplanations(t *testing.T) {
	file := filepath.Join(t.TempDir(), "explained.txt")
	write := func(content string) {
		must.Succeed(t, os.WriteFile(file, []byte(content), 0o600))
	}
	write("# these\na.go F: x → y\n\n  it is the same\n  thing\nb.go G: z → nothing\n\tit is not visible\n")
	why, err := ReadExplanations(file)
	if want := (Explanations{"a.go F: x → y": "it is the same thing", "b.go G: z → nothing": "it is not visible"}); err != nil || !maps.Equal(why, want) {
		t.Errorf("got %v, %v; want %v", why, err, want)
	}
	for _, bad := range []string{"a.go F: x → y\n", "  of nothing\n"} {
		write(bad)
		if _, err := ReadExplanations(file); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestReport(t *testing.T) {
	mutant := func(id int, file, before string) Mutant {
		return Mutant{ID: id, File: file, Line: id, Function: "F", Before: before, After: "nothing"}
	}
	all := []Mutant{mutant(1, "p/a.go", "a"), mutant(2, "p/a.go", "b"), mutant(3, "q/b.go", "c"), mutant(4, "p/a.go", "d")}
	r := &Report{Commit: "abc", Of: 9, Seed: 3, Results: []Result{
		{Mutant: all[3], Outcome: Unreached}, {Mutant: all[0], Outcome: Noticed}, {Mutant: all[1], Outcome: Survived}, {Mutant: all[2], Outcome: Endless},
	}}
	file := filepath.Join(t.TempDir(), "report.json")
	must.Succeed(t, r.Write(file))
	read, err := ReadReport(file)
	must.Succeed(t, err)
	why := Explanations{"p/a.go F: b → nothing": "it is so", "p/a.go F: a → nothing": "it was noticed", "p/gone.go F: x → y": "it is not there", "mutants_test.go F: x → y": "another package"}
	var text strings.Builder
	must.Succeed(t, read.Table(&text, why))
	const want = "`make mutants` of abc, 4 of 9 mutants by seed 3:\n\n" +
		"| package | mutants | noticed | | explained | open |\n|---|---|---|---|---|---|\n" +
		"| `p` | 3 | 1 | 33.3 % | 1 | 1 |\n| `q` | 1 | 1 | 100.0 % | 0 | 0 |\n| all | 4 | 2 | **50.0 %** | 1 | 1 |\n"
	if text.String() != want {
		t.Errorf("got\n%s\nwant\n%s", text.String(), want)
	}
	text.Reset()
	must.Succeed(t, read.List(&text, why))
	const listed = "- `p/a.go`, `F`: `` b `` → `` nothing ``. it is so\n- `p/a.go`, `F`: `` d `` → `` nothing ``. Not explained.\n"
	if text.String() != listed {
		t.Errorf("got\n%s\nwant\n%s", text.String(), listed)
	}
	if survivors := read.Survivors(); len(survivors) != 2 || survivors[0].ID != 2 || survivors[1].ID != 4 {
		t.Errorf("survivors are %v", survivors)
	}
	if stale := read.Stale(all, why); !slices.Equal(stale, []string{"p/a.go F: a → nothing", "p/gone.go F: x → y"}) {
		t.Errorf("stale are %q", stale)
	}
}

func TestEqualMutantsAreListedOnce(t *testing.T) {
	r := &Report{}
	for line, before := range []string{"a", "b", "a"} {
		r.Results = append(r.Results, Result{Mutant: Mutant{ID: line, File: "p/a.go", Line: line, Function: "F", Before: before, After: "nothing"}, Outcome: Survived})
	}
	var text strings.Builder
	if err := r.List(&text, nil); err != nil || strings.Count(text.String(), "`` a ``") != 1 || strings.Count(text.String(), "\n") != 2 {
		t.Errorf("%v:\n%s", err, text.String())
	}
}
