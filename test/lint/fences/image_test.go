package fences

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestTheImageIsBuiltFromAllOfTheManagersPackages checks that the Dockerfile copies, and
// .dockerignore admits, the directory of each.
func TestTheImageIsBuiltFromAllOfTheManagersPackages(t *testing.T) {
	dockerfile, err := os.ReadFile("../../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	ignored, err := os.ReadFile("../../../.dockerignore")
	if err != nil {
		t.Fatal(err)
	}
	var copied []string
	for _, match := range regexp.MustCompile(`(?m)^COPY (\S+) (\S+)$`).FindAllStringSubmatch(string(dockerfile), -1) {
		if match[1] == match[2] && strings.Contains(string(ignored), "\n!"+match[1]+"\n") {
			copied = append(copied, match[1])
		}
	}
	for _, pkg := range goList(t, "-deps", "./cmd/manager") {
		within, ours := strings.CutPrefix(pkg, module+"/")
		if ours && !coveredBy(copied, within) {
			t.Errorf("the image is built without %s: it copies %q", within, copied)
		}
	}
}

func coveredBy(dirs []string, pkg string) bool {
	for _, dir := range dirs {
		if strings.HasPrefix(pkg+"/", dir+"/") {
			return true
		}
	}
	return false
}
