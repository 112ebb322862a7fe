package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

const samplesDir = "config/samples"

// samples holds the files of config/samples, in the order of their names: claims,
// and the other objects, which must exist before them.
type samples struct{ platform, claims []string }

func findSamples(at place) (samples, error) {
	files, err := filepath.Glob(filepath.Join(at.moduleRoot, samplesDir, "*.yaml"))
	if err != nil {
		return samples{}, err
	}
	var found samples
	for _, file := range files {
		if filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		claims, err := hasClaims(file)
		switch {
		case err != nil:
			return samples{}, fmt.Errorf("reading %s: %w", at.shown(file), err)
		case claims:
			found.claims = append(found.claims, at.shown(file))
		default:
			found.platform = append(found.platform, at.shown(file))
		}
	}
	if len(found.claims) == 0 {
		return samples{}, fmt.Errorf("%s has no IPClaim", samplesDir)
	}
	return found, nil
}

// hasClaims reports whether a file holds IPClaims. A file must hold only claims, or none.
func hasClaims(path string) (bool, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	claims, otherObjects := 0, 0
	for {
		var object unstructured.Unstructured
		err := decoder.Decode(&object)
		switch {
		case errors.Is(err, io.EOF) && claims > 0 && otherObjects > 0:
			return false, errors.New("it has IPClaims and other kinds; the demo needs them in separate files")
		case errors.Is(err, io.EOF):
			return claims > 0, nil
		case err != nil:
			return false, err
		case object.GetKind() == "IPClaim":
			claims++
		case object.GetKind() != "":
			otherObjects++
		}
	}
}
