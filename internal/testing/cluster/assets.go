package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	modulePath = "github.com/cadastre-dev/cadastre"
	assetsEnv  = "KUBEBUILDER_ASSETS"
)

// ModuleRoot returns the directory of Cadastre's go.mod: the working directory or one above it.
func ModuleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(content), "module "+modulePath+"\n") {
			return dir, nil
		}
		above := filepath.Dir(dir)
		if above == dir {
			return "", fmt.Errorf("no directory above the working directory has the go.mod of %s", modulePath)
		}
		dir = above
	}
}

// assets holds the directory of the control plane's binaries.
type assets string

// findAssets returns the named directory, else the one of $KUBEBUILDER_ASSETS, else bin/k8s,
// and makes sure that nothing is missing.
func findAssets(named, moduleRoot string) (assets, error) {
	dir := named
	if dir == "" {
		dir = os.Getenv(assetsEnv)
	}
	if dir == "" {
		dir = filepath.Join(moduleRoot, "bin", "k8s")
	}
	found := assets(dir)
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kubectl"} {
		if _, err := os.Stat(found.path(name)); errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("%s is missing: run `make controlplane`, or set %s to a directory that has it",
				found.path(name), assetsEnv)
		}
	}
	return found, nil
}

// Binary returns the path of a program of the control plane, such as kubectl, to be run without
// a cluster or with other input than Cluster.Kubectl has.
func Binary(name string) (string, error) {
	root, err := ModuleRoot()
	if err != nil {
		return "", err
	}
	found, err := findAssets("", root)
	return found.path(name), err
}

func (a assets) path(name string) string { return filepath.Join(string(a), name) }
