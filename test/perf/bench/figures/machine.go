package figures

import (
	"bufio"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// ThisMachine is the machine that this process runs on.
func ThisMachine() Machine {
	m := Machine{CPU: "unknown", CPUs: runtime.NumCPU(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
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
