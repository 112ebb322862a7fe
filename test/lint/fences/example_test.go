package fences

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

// requirements holds the parts of the output of `go mod edit -json` on a go.mod that are read.
type requirements struct {
	Module  struct{ Path string }
	Go      string
	Require []struct{ Path, Version string }
}

// TestTheExampleProviderIsAnOutsiderWithTheSameVersions checks that the module of the example
// provider lies beyond the path within which Go lets it import internal packages, and requires of
// each module the same version as this one.
func TestTheExampleProviderIsAnOutsiderWithTheSameVersions(t *testing.T) {
	ours, example := readRequirements(t, "go.mod"), readRequirements(t, "test/example-provider/go.mod")
	if strings.HasPrefix(example.Module.Path+"/", module+"/") {
		t.Errorf("its path is %s: Go lets it import %s/internal", example.Module.Path, module)
	}
	if example.Go != ours.Go {
		t.Errorf("it is of Go %s, and this module of %s", example.Go, ours.Go)
	}
	want := map[string]string{}
	for _, required := range ours.Require {
		want[required.Path] = required.Version
	}
	for _, required := range example.Require {
		if version, ok := want[required.Path]; ok && required.Version != version {
			t.Errorf("it requires %s %s, and this module %s", required.Path, required.Version, version)
		}
	}
}

func readRequirements(t *testing.T, file string) requirements {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", "../../../"+file).Output()
	if err != nil {
		t.Fatalf("reading %s: %v", file, err)
	}
	var read requirements
	if err := json.Unmarshal(out, &read); err != nil {
		t.Fatalf("reading %s: %v", file, err)
	}
	return read
}
