package plugin

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/framework/pages"
)

var update = flag.Bool("update", false, "write the output into testdata")

// terminal runs commands as one user and keeps the commands and their output.
type terminal struct {
	w      *world
	t      *testing.T
	user   string
	script bytes.Buffer
	// dir is the folder in which the commands write files, $DIR on the command line.
	dir string
}

// ran holds the result of a command.
type ran struct {
	t        *testing.T
	line     string
	out, err string
	code     command.ExitCode
}

// as returns a terminal of a user, with the rights that Kubernetes' RBAC gives them; of the
// administrator if the user is empty.
func (w *world) as(t *testing.T, user string) *terminal {
	return &terminal{w: w, t: t, user: user, dir: t.TempDir()}
}

// runs runs one command line, such as "kubectl ipam pools", and adds it to the transcript.
func (r *terminal) runs(line string) *ran {
	r.t.Helper()
	args := append(strings.Fields(strings.ReplaceAll(strings.TrimPrefix(line, "kubectl ipam "), "$DIR", r.dir)), "--kubeconfig="+r.w.Kubeconfig())
	if r.user != "" {
		args = append(args, "--as="+r.user)
	}
	if args[0] == cobra.ShellCompRequestCmd { // completes the last word
		words := len(strings.Fields(line)) - 2
		args = slices.Concat(args[:1], args[words:], args[1:words])
	}
	var out, errs bytes.Buffer
	code := app.Run(r.t.Context(), args, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errs})
	fmt.Fprintf(&r.script, "$ %s\n%s", line, strings.ReplaceAll(out.String()+errs.String(), r.dir, "$DIR"))
	if code != command.ExitDone {
		fmt.Fprintf(&r.script, "[exit code %d]\n", code)
	}
	r.script.WriteByte('\n')
	return &ran{t: r.t, line: line, out: out.String(), err: errs.String(), code: code}
}

// plays runs the commands of testdata/NAME.golden, which are its lines that begin with a dollar sign,
// and compares their output with the file. It calls the function that after has for a command when
// that has run. No output has the hidden words, unless the command has them.
func (r *terminal) plays(name string, after map[string]func(), hidden ...string) {
	r.t.Helper()
	transcript, err := os.ReadFile(golden(name))
	suite.Must(r.t, err)
	for line := range strings.Lines(string(transcript)) {
		command, isCommand := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "$ ")
		if !isCommand {
			continue
		}
		ran := r.runs(command)
		for _, word := range hidden {
			if !strings.Contains(command, word) {
				ran.hides(word)
			}
		}
		if then := after[command]; then != nil {
			then()
		}
	}
	r.matches(name)
}

func golden(name string) string { return filepath.Join("testdata", name+".golden") }

// ends expects the exit code.
func (r *ran) ends(code command.ExitCode) *ran {
	r.t.Helper()
	if r.code != code {
		r.t.Errorf("%s: exit code %d, want %d\n%s%s", r.line, r.code, code, r.out, r.err)
	}
	return r
}

// says expects that one of the streams has the text.
func (r *ran) says(text string) *ran {
	r.t.Helper()
	if !strings.Contains(r.out+r.err, text) {
		r.t.Errorf("%s: does not say %q:\n%s%s", r.line, text, r.out, r.err)
	}
	return r
}

// hides expects that neither stream has the text.
func (r *ran) hides(text string) *ran {
	r.t.Helper()
	if strings.Contains(r.out+r.err, text) {
		r.t.Errorf("%s: shows %q:\n%s%s", r.line, text, r.out, r.err)
	}
	return r
}

// digest matches the name of the record that a controller makes, with a digest of the claim's UID.
var digest = regexp.MustCompile(`\bmachine-0-[a-z2-7]{8}\b`)

// matches compares the transcript with testdata/NAME.golden.
func (r *terminal) matches(name string) {
	r.t.Helper()
	got := pages.Transcript(digest.ReplaceAllString(r.script.String(), "machine-0-<digest>"))
	path := golden(name)
	if *update {
		suite.Must(r.t, os.WriteFile(path, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(path)
	suite.Must(r.t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		r.t.Errorf("%s differs (-want +got):\n%s\nrewrite it with go test ./test/e2e/plugin -update", path, diff)
	}
}
