package play

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/cadastre-dev/cadastre/test/perf/bench/figures"
)

// describe says on what, and of what, everything was measured.
func (w *World) describe(ctx context.Context) error {
	w.report.Machine = machine()
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

func machine() figures.Machine {
	m := figures.Machine{CPU: "unknown", CPUs: runtime.NumCPU(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if name, ok := field("/proc/cpuinfo", "model name"); ok {
		m.CPU = name
	}
	if total, ok := field("/proc/meminfo", "MemTotal"); ok {
		kib, _ := strconv.Atoi(strings.TrimSuffix(total, " kB"))
		m.MemoryMiB = kib / 1024
	}
	return m
}

// field is the first value of a name in a file of "name: value" lines; none
// where the system has no such file.
func field(path, name string) (string, bool) {
	file, err := os.Open(path)
	if err != nil {
		return "", false
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), ":")
		if strings.TrimSpace(key) == name {
			return strings.TrimSpace(value), true
		}
	}
	return "", false
}

// commit is what git says of the working tree.
func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
