// Package messages keeps docs/messages.md, the table of all messages that people can get from
// the API: it collects them from runs of tests with bad inputs, checks their form, and makes
// sure that every message in the code is met by a row of the table.
//
// A test with a list of bad inputs uses Golden to record the messages that they lead to, in
// testdata/messages beside it; those of the webhooks stand in webhooks/testdata/answers. With
// -update both write the messages that they got. The test of this package reads them, with the
// rules of the CRDs and the policies, and compares the table: `make messages` writes it.
package messages

import (
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
)

var update = flag.Bool("update", false, "write what the test gets into its golden files") //nolint:gochecknoglobals // as all flags of tests are

// Updating reports whether tests are to write their golden files.
func Updating() bool { return *update }

// Row holds a message, and the place in which people get it.
type Row struct {
	// Object is the kind that it is about, such as IPClaim.
	Object string
	// On is the request that leads to it: create, update, delete, create or update; or the
	// condition that has it.
	On string
	// Answer is the HTTP code and reason, such as 422 Invalid, "warning", or the status and
	// reason of a condition.
	Answer string
	// Value is the wrong value, as the message has it; empty if it is not one value.
	Value   string
	Message string
}

// CreateOrUpdate is the On of a message about an object's own fields.
const CreateOrUpdate = "create, update"

// Invalid is the answer to an object whose fields are wrong.
const Invalid = "422 Invalid"

const separator = " | "

func (r Row) line() string {
	return strings.Join([]string{r.Object, r.On, r.Answer, r.Value, r.Message}, separator)
}

func rowOf(line string) (Row, error) {
	fields := strings.SplitN(line, separator, 5)
	if len(fields) != 5 {
		return Row{}, errors.New("no row of a table: " + line)
	}
	return Row{fields[0], fields[1], fields[2], fields[3], fields[4]}, nil
}

// Golden compares the messages that a test's bad inputs lead to with
// testdata/messages/<test>.txt, in the directory of the test. It must not be called if only
// some of the inputs are run.
func Golden(t *testing.T, rows []Row) {
	t.Helper()
	if run := flag.Lookup("test.run"); run != nil && strings.Contains(run.Value.String(), "/") {
		return
	}
	lines := make([]string, 0, len(rows))
	for _, r := range rows {
		lines = append(lines, r.line()+"\n")
	}
	slices.Sort(lines)
	compare(t, filepath.Join("testdata", "messages", t.Name()+".txt"), strings.Join(slices.Compact(lines), ""))
}

// compare compares a text with a file, or writes the file.
func compare(t *testing.T, file, got string) {
	t.Helper()
	if Updating() {
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o750), os.WriteFile(file, []byte(got), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	missing, extra := difference(string(want), got), difference(got, string(want))
	for _, line := range missing {
		t.Errorf("%s has a line that the run does not yield:\n%s", file, line)
	}
	for _, line := range extra {
		t.Errorf("%s lacks a line that the run yields:\n%s", file, line)
	}
	if len(missing)+len(extra) == 0 && string(want) != got {
		t.Errorf("%s has its lines in another order than the run yields", file)
	}
	if t.Failed() {
		t.Log("run the test with -update, and look at what it changes")
	}
}

// difference returns the lines of a text that another one does not have.
func difference(text, other string) []string {
	there := sets.New(slices.Collect(strings.Lines(other))...)
	return slices.DeleteFunc(slices.Collect(strings.Lines(text)), there.Has)
}

// Noted returns the rows that tests have recorded, from the root of the module.
func Noted(root fs.FS) ([]Row, error) {
	var rows []Row
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (path == "bin" || path == ".git" || path == "out") {
			return fs.SkipDir
		}
		if err != nil || !strings.Contains(path, "/testdata/messages/") {
			return err
		}
		text, err := fs.ReadFile(root, path)
		for line := range strings.Lines(string(text)) {
			row, wrong := rowOf(strings.TrimSuffix(line, "\n"))
			rows, err = append(rows, row), errors.Join(err, wrong)
		}
		return err
	})
	return rows, err
}

var (
	// subject matches the things that a message can be about: a field, an object with its kind
	// and name, a name in quotes, a block, or the very object whose condition it is.
	subject = regexp.MustCompile(strings.Join([]string{
		`^(spec|metadata|status|IPAddress spec)\b`,
		`"[^"]+"`,
		`\b(pool|routing domain|class|namespace|project|user|Cluster|IPPool|LocalIPPool|IPClass|IPClaim|IPAddressClaim|IPAllocation|IPAddress) [a-z0-9][\w./-]*`,
		`\d+\.\d+\.\d+\.\d+|[0-9a-f]+::`,
		`\b([Tt]his|[Tt]he|an?) (pool|claim|class)\b`,
		`\bIPAllocations?\b`,
	}, "|"))
	// remedy matches the next step: a colon or a comma with an imperative behind it, a
	// necessary state, or the event that comes next by itself.
	remedy = regexp.MustCompile(`(?:^|[:;,] |\bor |\band |as )(?:` + imperatives + `)\b|\bmust (?:not )?(?:be|lie|consist|have)\b|did you mean "|` +
		`supported values: |\bmay not be more than|as soon as `)
	// dump matches a value of a type of Go's.
	dump = regexp.MustCompile(`&\w+\{|map\[|\b0x[0-9a-f]{6}`)
	// words matches the words that messages do without.
	words = regexp.MustCompile(`(?i)\b(whoever|whom|nobody|somebody|told|let go|in line|disown|homeless|settle)\b`)
)

const imperatives = `add|annotate|ask|change|choose|correct|create|delete|give|have|keep|label|leave|look|make|name|release|` +
	`remove|restart|run|say|send|set|swap|take|try|use|wait|write`

// informs matches the conditions of objects that fulfill their purpose, and events of type
// Normal.
var informs = regexp.MustCompile(`^(True, (Bound|Ready|Recorded|AddressAllocated)|Normal, \w+)$`)

// isOfTheRequest reports whether a message means that the operator could not answer, and
// nothing about the object.
func (r Row) isOfTheRequest() bool {
	return slices.Contains([]string{"413", "429", "500", "503"}, r.Answer[:min(3, len(r.Answer))])
}

// foreign matches messages that come from Kubernetes, word by word.
var foreign = regexp.MustCompile(`" already exists$|in body must be of type `)

// Faults returns the parts of the form that a message lacks: the wrong value, its fault and the
// remedy, in plain words.
func (r Row) Faults() []string {
	if foreign.MatchString(r.Message) {
		return nil
	}
	var faults []string
	if !subject.MatchString(r.Message) && !r.isOfTheRequest() {
		faults = append(faults, "it names no field and no object")
	}
	if !strings.Contains(r.Message, r.Value) {
		faults = append(faults, "it lacks the value "+r.Value)
	}
	if !remedy.MatchString(r.Message) && !informs.MatchString(r.Answer) {
		faults = append(faults, "it names no next step")
	}
	if dump.MatchString(r.Message) {
		faults = append(faults, "it has a value as Go writes it")
	}
	if word := words.FindString(r.Message); word != "" {
		faults = append(faults, `it says "`+word+`"`)
	}
	return faults
}
