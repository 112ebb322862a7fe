// Package modules tries the modules of a release as other projects get them.
package modules

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

const (
	root = "github.com/cadastre-dev/cadastre"
	api  = root + "/api"
)

// TestReleasedModulesAreComplete releases the last commit on a module proxy of its own, and gets the
// types, and the operator, into modules that replace nothing.
func TestReleasedModulesAreComplete(t *testing.T) {
	repository, err := filepath.Abs("../../..")
	suite.Must(t, err)
	version := run(t, repository, nil, "go", "list", "-m", "-f", "{{.Version}}", api)
	proxy := t.TempDir()
	release(t, proxy, repository, module.Version{Path: root, Version: version}, "")
	release(t, proxy, repository, module.Version{Path: api, Version: version}, "api")

	known := url.URL{Scheme: "file", Path: filepath.Join(run(t, repository, nil, "go", "env", "GOMODCACHE"), "cache", "download")}
	env := []string{
		"GOPROXY=" + strings.Join([]string{(&url.URL{Scheme: "file", Path: proxy}).String(), known.String(), run(t, repository, nil, "go", "env", "GOPROXY")}, ","),
		"GOMODCACHE=" + t.TempDir(), "GOFLAGS=-modcacherw", "GOSUMDB=off", "GOWORK=off",
	}
	t.Run("types", func(t *testing.T) {
		scratch := newModule(t, env, api+"/v1alpha1")
		run(t, scratch, env, "go", "get", api+"/v1alpha1@"+version)
		run(t, scratch, env, "go", "build", "./...")
		built := strings.Fields(run(t, scratch, env, "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./..."))
		slices.Sort(built)
		want := []string{
			"example.com/scratch",
			"github.com/cadastre-dev/cadastre/api",
			"github.com/fxamacker/cbor/v2",
			"github.com/go-logr/logr",
			"github.com/json-iterator/go",
			"github.com/modern-go/concurrent",
			"github.com/modern-go/reflect2",
			"github.com/x448/float16",
			"go.yaml.in/yaml/v2",
			"golang.org/x/net",
			"golang.org/x/text",
			"gopkg.in/inf.v0",
			"k8s.io/apimachinery",
			"k8s.io/klog/v2",
			"k8s.io/kube-openapi",
			"k8s.io/utils",
			"sigs.k8s.io/json",
			"sigs.k8s.io/randfill",
			"sigs.k8s.io/structured-merge-diff/v6",
		}
		if diff := cmp.Diff(want, slices.Compact(built)); diff != "" {
			t.Errorf("the types are built of other modules (-want +got):\n%s", diff)
		}
		t.Logf("modules of the build list: %d", strings.Count(run(t, scratch, env, "go", "list", "-m", "all"), "\n"))
	})
	t.Run("operator", func(t *testing.T) {
		scratch := newModule(t, env, root)
		run(t, scratch, env, "go", "get", root+"@"+version)
		if got := run(t, scratch, env, "go", "list", "-m", "-f", "{{.Version}}", api); got != version {
			t.Errorf("the operator comes with version %q of the types, want %s", got, version)
		}
		run(t, scratch, env, "go", "mod", "download", api)
		t.Logf("modules of the build list: %d", strings.Count(run(t, scratch, env, "go", "list", "-m", "all"), "\n"))
	})
}

// release puts a module of the repository, as it is committed, into a proxy's folder, in the layout of
// https://go.dev/ref/mod#goproxy-protocol.
func release(t *testing.T, proxy, repository string, m module.Version, folder string) {
	t.Helper()
	at := filepath.Join(proxy, filepath.FromSlash(m.Path), "@v")
	suite.Must(t, os.MkdirAll(at, 0o750))
	gomod, err := os.ReadFile(filepath.Join(repository, folder, "go.mod"))
	suite.Must(t, err)
	suite.Must(t, os.WriteFile(filepath.Join(at, m.Version+".mod"), gomod, 0o600))
	suite.Must(t, os.WriteFile(filepath.Join(at, m.Version+".info"), fmt.Appendf(nil, `{"Version":%q}`, m.Version), 0o600))
	file, err := os.Create(filepath.Join(at, m.Version+".zip"))
	suite.Must(t, err)
	suite.Must(t, zip.CreateFromVCS(file, m, repository, "HEAD", folder))
	suite.Must(t, file.Close())
}

// newModule makes a module in which a package imports another one.
func newModule(t *testing.T, env []string, imports string) string {
	t.Helper()
	folder := t.TempDir()
	run(t, folder, env, "go", "mod", "init", "example.com/scratch")
	if imports != root { // which has no package
		suite.Must(t, os.WriteFile(filepath.Join(folder, "scratch.go"), fmt.Appendf(nil, "package scratch\n\nimport _ %q\n", imports), 0o600))
	}
	return folder
}

func run(t *testing.T, folder string, env []string, name string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Dir, command.Env = folder, append(os.Environ(), env...)
	var stderr strings.Builder
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out))
}
