package reference

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/internal/testing/must"
)

const root = "../.."

func TestOverviewListsExitCodes(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/kubectl-ipam/README.md"))
	must.Succeed(t, err)
	var documented []command.ExitCode
	for _, row := range regexp.MustCompile(`(?m)^\| (\d+) \| \w`).FindAllStringSubmatch(string(text), -1) {
		code, err := strconv.Atoi(row[1])
		must.Succeed(t, err)
		documented = append(documented, command.ExitCode(code))
	}
	if diff := cmp.Diff(command.ExitCodes(), documented); diff != "" {
		t.Errorf("the table of exit codes differs (-commands +documented):\n%s", diff)
	}
}

// TestEveryCommandIsDocumented expects a sentence, a longer text and an example.
func TestEveryCommandIsDocumented(t *testing.T) {
	for _, cmd := range runnable(plugin()) {
		if strings.HasPrefix(cmd.CommandPath(), "kubectl ipam completion") {
			continue
		}
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: Short is %q, want a phrase without a full stop", cmd.CommandPath(), cmd.Short)
		}
		if len(cmd.Long) < len(cmd.Short) {
			t.Errorf("%s: Long is shorter than Short", cmd.CommandPath())
		}
		if !cmd.HasSubCommands() && !strings.Contains(cmd.Example, "kubectl ipam "+cmd.Name()) && !strings.Contains(cmd.Example, cmd.CommandPath()) {
			t.Errorf("%s: the examples do not show it", cmd.CommandPath())
		}
		cmd.Flags().VisitAll(func(flag *pflag.Flag) {
			if flag.Usage == "" {
				t.Errorf("%s --%s: has no description", cmd.CommandPath(), flag.Name)
			}
		})
	}
}

func runnable(cmd *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	if cmd.Runnable() {
		all = append(all, cmd)
	}
	for _, child := range cmd.Commands() {
		all = append(all, runnable(child)...)
	}
	return all
}

// TestCommandExamplesAreValid parses each line of an example.
func TestCommandExamplesAreValid(t *testing.T) {
	for _, cmd := range runnable(plugin()) {
		for line := range strings.Lines(cmd.Example) {
			if words, ok := strings.CutPrefix(strings.TrimSpace(line), "kubectl ipam "); ok {
				understood(t, words)
			}
		}
	}
}

// TestK9sPluginsRunExistingCommands reads the plug-ins of K9s.
func TestK9sPluginsRunExistingCommands(t *testing.T) {
	var file struct {
		Plugins map[string]struct {
			ShortCut, Description, Command string
			Scopes, Args                   []string
			Background                     bool
		}
	}
	text, err := os.ReadFile(filepath.Join(root, "config/k9s/plugins.yaml"))
	must.Succeed(t, err)
	must.Succeed(t, yaml.UnmarshalStrict(text, &file))
	for name, plugin := range file.Plugins {
		if plugin.ShortCut == "" || plugin.Description == "" || len(plugin.Scopes) == 0 || plugin.Command != "sh" || len(plugin.Args) != 2 {
			t.Errorf("%s: got %+v", name, plugin)
			continue
		}
		words, ours := strings.CutPrefix(plugin.Args[1], "kubectl ipam ")
		if !ours {
			t.Errorf("%s: runs %q", name, plugin.Args[1])
		}
		understood(t, words)
	}
}

// variable matches a variable of a shell or of K9s.
var variable = regexp.MustCompile(`"[^"]*\$[^"]*"`)

// understood expects that a command line without "kubectl ipam" names a command, and flags
// and as many arguments as it takes.
func understood(t *testing.T, line string) {
	t.Helper()
	line, _, _ = strings.Cut(variable.ReplaceAllString(line, "x"), " | ")
	line, _, _ = strings.Cut(line, " > ")
	cmd, args, err := plugin().Find(strings.Fields(line))
	if err != nil {
		t.Errorf("%s: %v", line, err)
		return
	}
	if err := cmd.ParseFlags(args); err != nil {
		t.Errorf("%s: %v", line, err)
		return
	}
	if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
		t.Errorf("%s: %v", line, err)
	}
}

// action matches an action of a Go template, as krew-release-bot fills in.
var action = regexp.MustCompile(`\{\{ addURIAndSha "([^"]+)" \.TagName }}`)

// TestKrewAcceptsManifest fills the manifest in as a release does.
func TestKrewAcceptsManifest(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, ".krew.yaml"))
	must.Succeed(t, err)
	filled := action.ReplaceAllString(string(text), "uri: $1\n    sha256: "+strings.Repeat("0", 64))
	filled = strings.ReplaceAll(filled, "{{ .TagName }}", "v0.1.0")
	var manifest struct {
		APIVersion, Kind string
		Metadata         struct{ Name string }
		Spec             struct {
			Version, Homepage, ShortDescription, Description, Caveats string
			Platforms                                                 []struct {
				URI, Sha256, Bin string
				Selector         struct{ MatchLabels map[string]string }
			}
		}
	}
	must.Succeed(t, yaml.UnmarshalStrict([]byte(filled), &manifest))
	// The naming guide of Krew limits the short description to 50 characters.
	if s := manifest.Spec; manifest.Metadata.Name != "ipam" || s.Version != "v0.1.0" || len(s.ShortDescription) > 50 || len(s.Platforms) != 5 {
		t.Errorf("got %+v", manifest)
	}
	for _, platform := range manifest.Spec.Platforms {
		os, arch := platform.Selector.MatchLabels["os"], platform.Selector.MatchLabels["arch"]
		if !strings.Contains(platform.URI, "/v0.1.0/kubectl-ipam_"+os+"_"+arch+".") || !strings.HasPrefix(platform.Bin, "kubectl-ipam") {
			t.Errorf("got %+v", platform)
		}
	}
}
