// Package release_test runs `make release`, and checks the files.
package release_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/cadastre-dev/cadastre/internal/manifests"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/framework/helm"
)

// version has a series in metadata.yaml.
const (
	version = "v0.1.7"
	image   = "registry.example.com:5000/ipam/cadastre:" + version
)

// made returns the files of a release with the plug-in for one platform, by their names.
func made(t *testing.T) map[string][]byte {
	t.Helper()
	out := t.TempDir()
	run(t, "make", "release", "VERSION="+version, "RELEASE_IMG="+image, "PLATFORMS=linux/amd64", "OUT="+out)
	files := map[string][]byte{}
	dir := os.DirFS(filepath.Join(out, "release"))
	err := fs.WalkDir(dir, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		files[name], err = fs.ReadFile(dir, name)
		return err
	})
	suite.Must(t, err)
	return files
}

// run runs a command in the root of the module.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := command(t, name, args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", cmd, err, out)
	}
	return string(out)
}

// command returns a command in the root of the module.
func command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = suite.ModuleRoot(t)
	return cmd
}

func TestRelease(t *testing.T) {
	files := made(t)
	names := []string{
		"cadastre-0.1.7.tgz", "checksums.txt", "install-cert-manager.yaml", "install.yaml", "ipam-components.yaml",
		"kubectl-ipam.cdx.json", "kubectl-ipam_linux_amd64.tar.gz", "manager.cdx.json", "metadata.yaml",
	}
	if diff := cmp.Diff(names, slices.Sorted(maps.Keys(files))); diff != "" {
		t.Fatalf("the files of a release (-want +got):\n%s", diff)
	}
	t.Run("is the same each time", func(t *testing.T) {
		for name, content := range made(t) {
			if !bytes.Equal(files[name], content) {
				t.Errorf("%s differs when it is made again", name)
			}
		}
	})
	t.Run("has the checksums of all files", func(t *testing.T) {
		dir := t.TempDir()
		for name, content := range files {
			write(t, filepath.Join(dir, name), content)
		}
		cmd := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "checksums.txt")
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil || strings.Count(string(out), ": OK\n") != len(names)-1 {
			t.Errorf("%v: %s", err, out)
		}
	})
	for name, installs := range map[string]string{"install.yaml": "", "install-cert-manager.yaml": "Certificate", "ipam-components.yaml": ""} {
		t.Run("installs by "+name, func(t *testing.T) { hasManifests(t, files[name], installs) })
	}
	t.Run("has a chart that Helm takes", func(t *testing.T) { hasChart(t, files["cadastre-0.1.7.tgz"]) })
	t.Run("has a plug-in that knows its version", func(t *testing.T) { hasPlugin(t, files) })
	t.Run("lists the modules of the programs", func(t *testing.T) {
		for _, name := range []string{"manager", "kubectl-ipam"} {
			hasModules(t, files[name+".cdx.json"])
		}
	})
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	suite.Must(t, os.WriteFile(path, content, 0o700))
}

// hasManifests fails if manifests do not install the released image, or have no object of a kind.
func hasManifests(t *testing.T, installed []byte, kind string) {
	t.Helper()
	text := strings.ReplaceAll(string(installed), "${CADASTRE_NAMESPACE:=cadastre-system}", "cadastre-system")
	objects, err := manifests.Decode([]byte(text))
	suite.Must(t, err)
	kinds := map[string]int{}
	for _, obj := range objects {
		kinds[obj.GetKind()]++
	}
	if kinds["Deployment"] != 1 || kinds["CustomResourceDefinition"] != 5 || kinds["ValidatingAdmissionPolicy"] != 3 || kind != "" && kinds[kind] == 0 {
		t.Errorf("objects by kind: %v", kinds)
	}
	if strings.Count(text, "image: "+image+"\n") != 1 || strings.Contains(text, ":dev\n") {
		t.Errorf("it does not name %s, or an image that is not released", image)
	}
}

// hasChart renders the chart with Helm, and compares its image and versions.
func hasChart(t *testing.T, archive []byte) {
	t.Helper()
	home := t.TempDir()
	path := filepath.Join(home, "cadastre-0.1.7.tgz")
	write(t, path, archive)
	program, err := helm.New(suite.ModuleRoot(t), home)
	suite.Must(t, err)
	if out, err := program.Run(t.Context(), "lint", "--strict", path); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	out, err := program.Run(t.Context(), "template", "cadastre", path, "--namespace=cadastre-system")
	suite.Must(t, err)
	for _, want := range []string{`image: "` + image + `"`, `app.kubernetes.io/version: "` + version + `"`, `helm.sh/chart: "cadastre-0.1.7"`} {
		if !strings.Contains(out, want) {
			t.Errorf("the chart does not render %s", want)
		}
	}
}

// hasPlugin runs the plug-in of the archive, and looks for its checksum among the modules.
func hasPlugin(t *testing.T, files map[string][]byte) {
	t.Helper()
	compressed, err := gzip.NewReader(bytes.NewReader(files["kubectl-ipam_linux_amd64.tar.gz"]))
	suite.Must(t, err)
	dir, modes := t.TempDir(), map[string]int64{}
	for archive := tar.NewReader(compressed); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		suite.Must(t, err)
		content, err := io.ReadAll(archive)
		suite.Must(t, err)
		modes[header.Name] = header.Mode
		write(t, filepath.Join(dir, header.Name), content)
	}
	if diff := cmp.Diff(map[string]int64{"kubectl-ipam": 0o755, "kubectl_complete-ipam": 0o755, "LICENSE": 0o644}, modes); diff != "" {
		t.Errorf("the files of the archive (-want +got):\n%s", diff)
	}
	binary := filepath.Join(dir, "kubectl-ipam")
	if out := run(t, binary, "version", "--client"); !strings.Contains(out, version) {
		t.Errorf("the plug-in prints the version %q, want %s", out, version)
	}
	content, err := os.ReadFile(binary)
	suite.Must(t, err)
	if sum := checksum(content); !bytes.Contains(files["kubectl-ipam.cdx.json"], []byte(sum)) {
		t.Errorf("kubectl-ipam.cdx.json is of another program than the archive has: %s", sum)
	}
}

func checksum(content []byte) string { return fmt.Sprintf("%x", sha256.Sum256(content)) }

// hasModules fails if a bill of materials has another version, or not client-go of go.mod.
func hasModules(t *testing.T, text []byte) {
	t.Helper()
	type component struct{ Name, Version string }
	var bill struct {
		Metadata   struct{ Component component }
		Components []component
	}
	suite.Must(t, json.Unmarshal(text, &bill))
	if got := bill.Metadata.Component; got != (component{"github.com/cadastre-dev/cadastre", version}) {
		t.Errorf("it is of %v", got)
	}
	required := component{"k8s.io/client-go", strings.TrimSpace(run(t, "go", "list", "-m", "-f", "{{.Version}}", "k8s.io/client-go"))}
	if !slices.Contains(bill.Components, required) {
		t.Errorf("it lists %d modules, but not %v", len(bill.Components), required)
	}
}

// TestKrewManifestMatchesRelease fills in the manifest for Krew, and compares the platforms.
func TestKrewManifestMatchesRelease(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(suite.ModuleRoot(t), "hack/make/release.mk"))
	suite.Must(t, err)
	out := t.TempDir()
	dir := filepath.Join(out, "release")
	suite.Must(t, os.Mkdir(dir, 0o755))
	var want []string
	for platform := range strings.FieldsSeq(string(regexp.MustCompile(`(?m)^platforms := (.*)$`).FindSubmatch(makefile)[1])) {
		system, architecture, _ := strings.Cut(platform, "/")
		name := "kubectl-ipam_" + system + "_" + architecture + ".tar.gz"
		if system == "windows" {
			name = strings.Replace(name, ".tar.gz", ".zip", 1)
		}
		write(t, filepath.Join(dir, name), []byte(name))
		want = append(want, platform+" https://github.com/cadastre-dev/cadastre/releases/download/"+version+"/"+name+" "+checksum([]byte(name)))
	}
	run(t, "make", "release-krew", "VERSION="+version, "OUT="+out)
	text, err := os.ReadFile(filepath.Join(dir, "ipam.yaml"))
	suite.Must(t, err)
	var plugin struct {
		Spec struct {
			Version   string
			Platforms []struct {
				Selector    struct{ MatchLabels map[string]string }
				URI, SHA256 string
			}
		}
	}
	suite.Must(t, yaml.Unmarshal(text, &plugin))
	var got []string
	for _, p := range plugin.Spec.Platforms {
		got = append(got, p.Selector.MatchLabels["os"]+"/"+p.Selector.MatchLabels["arch"]+" "+p.URI+" "+p.SHA256)
	}
	if diff := cmp.Diff(want, got); diff != "" || plugin.Spec.Version != version {
		t.Errorf("the manifest for Krew is of %s (-want +got):\n%s", plugin.Spec.Version, diff)
	}
	suite.Must(t, os.Remove(filepath.Join(dir, "kubectl-ipam_windows_amd64.zip")))
	if out, err := command(t, "make", "release-krew", "VERSION="+version, "OUT="+out).CombinedOutput(); err == nil || !strings.Contains(string(out), "kubectl-ipam_windows_amd64.zip") {
		t.Errorf("a platform without an archive: %v: %s", err, out)
	}
}

func TestGoreleaserAcceptsConfiguration(t *testing.T) {
	binary := filepath.Join(suite.ModuleRoot(t), "bin", "goreleaser-check")
	if _, err := os.Stat(binary); err != nil {
		t.Fatalf("%v: run `make goreleaser`", err)
	}
	run(t, binary, ".goreleaser.yaml")
	wrong := filepath.Join(t.TempDir(), "wrong.yaml")
	write(t, wrong, []byte("version: 2\nbuild: []\n"))
	if out, err := exec.CommandContext(t.Context(), binary, wrong).CombinedOutput(); err == nil || !strings.Contains(string(out), "field build not found") {
		t.Errorf("a field that does not exist: %v: %s", err, out)
	}
}

// TestImageReportsMissingBuilder expects `make image` to look for builders, and to run the first one
// that exists.
func TestImageReportsMissingBuilder(t *testing.T) {
	if out, err := command(t, "make", "image", "BUILDERS=no-builder-1 no-builder-2").CombinedOutput(); err == nil || !strings.Contains(string(out), "none of no-builder-1 no-builder-2 is installed") {
		t.Errorf("without a builder: %v: %s", err, out)
	}
	builder := filepath.Join(t.TempDir(), "builder")
	write(t, builder, []byte("#!/bin/sh\necho \"asked: $*\"\n"))
	out := run(t, "make", "image", "BUILDERS=no-builder-1 "+builder, "VERSION="+version, "IMG="+image)
	if want := "asked: build --build-arg VERSION=" + version + " --tag " + image + " .\n"; !strings.Contains(out, want) {
		t.Errorf("the builder was run by %q, want %q", out, want)
	}
}

func TestChartHasReleaseImage(t *testing.T) {
	program, err := helm.New(suite.ModuleRoot(t), t.TempDir())
	suite.Must(t, err)
	const digest = "sha256:0123456789012345678901234567890123456789012345678901234567890123"
	for _, image := range []string{"cadastre:v1", "cadastre:" + version, "registry.example.com:5000/x:v1", "registry.example.com/x@" + digest} {
		out := t.TempDir()
		run(t, "make", "release-chart", "VERSION="+version, "RELEASE_IMG="+image, "OUT="+out)
		rendered, err := program.Run(t.Context(), "template", "cadastre", filepath.Join(out, "release", "cadastre-0.1.7.tgz"))
		if err != nil || !strings.Contains(rendered, `image: "`+image+`"`) {
			t.Errorf("%s: %v: the chart does not render it", image, err)
		}
	}
	for _, image := range []string{"registry.example.com:5000/x", "cadastre"} {
		if out, err := command(t, "make", "release-chart", "VERSION="+version, "RELEASE_IMG="+image, "OUT="+t.TempDir()).CombinedOutput(); err == nil || !strings.Contains(string(out), image+" has neither a tag nor a digest") {
			t.Errorf("%s: %v: %s", image, err, out)
		}
	}
}

func TestVersionsAreSemantic(t *testing.T) {
	for _, version := range []string{"0.1.7", "v0.1", "latest"} {
		if out, err := command(t, "make", "release", "VERSION="+version, "OUT="+t.TempDir()).CombinedOutput(); err == nil || !strings.Contains(string(out), `"`+version+`" is no version`) {
			t.Errorf("%s: %v: %s", version, err, out)
		}
	}
}
