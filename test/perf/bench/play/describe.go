package play

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/cadastre-dev/cadastre/test/perf/bench/figures"
)

// describe says on what, and of what, everything was measured.
func (w *World) describe(ctx context.Context) error {
	w.report.Machine = figures.ThisMachine()
	answer, err := w.watch.do(ctx, "GET", "/version", nil)
	if err != nil {
		return err
	}
	var version struct{ GitVersion string }
	if err := json.Unmarshal(answer, &version); err != nil {
		return fmt.Errorf("reading the API server's version: %w", err)
	}
	w.report.Versions = map[string]string{"kube-apiserver": version.GitVersion, "Go": runtime.Version(), "Cadastre": commit(ctx)}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "sigs.k8s.io/controller-runtime" {
				w.report.Versions["controller-runtime"] = module.Version
			}
		}
	}
	return nil
}

// commit is what git says of the working tree.
func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
