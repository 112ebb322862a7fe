package cluster

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

const (
	// tailLines is the number of lines of a log that are quoted when its process did not get
	// ready.
	tailLines = 40
	// readyAsked is the text that a manager logs each time when it is asked whether it is
	// ready, and is not. It is left out of the quote.
	readyAsked = "healthz check failed"
)

// runDir holds the directory in which one cluster keeps its files: credentials, the data of
// etcd, one log a process (logs/NAME.log) and the process that runs (pids/NAME.pid).
type runDir struct {
	path      string
	temporary bool
}

// newRunDir takes the named directory, without the files that an earlier cluster left in it, or
// makes a temporary one.
func newRunDir(named string) (*runDir, error) {
	d := &runDir{path: named}
	if named == "" {
		temp, err := os.MkdirTemp("", "cadastre-")
		if err != nil {
			return nil, err
		}
		d.path, d.temporary = temp, true
	}
	if err := os.MkdirAll(d.path, 0o700); err != nil {
		return nil, err
	}
	absolute, err := filepath.Abs(d.path)
	if err != nil {
		return nil, err
	}
	// Kustomize resolves links before it compares paths.
	if d.path, err = filepath.EvalSymlinks(absolute); err != nil {
		return nil, err
	}
	for _, part := range []string{"logs", "pids", "auth", "launch", "install", "etcd", "apiserver", "cache", "capi"} {
		if err := os.RemoveAll(d.pathTo(part)); err != nil {
			return nil, err
		}
		if err := os.MkdirAll(d.pathTo(part), 0o700); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (d *runDir) pathTo(parts ...string) string {
	return filepath.Join(append([]string{d.path}, parts...)...)
}

func (d *runDir) logPath(name string) string { return d.pathTo("logs", name+".log") }
func (d *runDir) pidPath(name string) string { return d.pathTo("pids", name+".pid") }

// log opens the log of a process, behind the output of its earlier runs.
func (d *runDir) log(name string) (*os.File, error) {
	return os.OpenFile(d.logPath(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

// tail quotes the end of a log.
func (d *runDir) tail(name string) string {
	content, err := os.ReadFile(d.logPath(name))
	if err != nil {
		return err.Error()
	}
	lines := slices.DeleteFunc(bytes.Split(bytes.TrimSpace(content), []byte("\n")), func(line []byte) bool {
		return bytes.Contains(line, []byte(readyAsked))
	})
	lines = lines[max(0, len(lines)-tailLines):]
	return fmt.Sprintf("the end of %s:\n  %s", d.logPath(name), bytes.Join(lines, []byte("\n  ")))
}

func (d *runDir) pid(name string) (int, error) {
	text, err := os.ReadFile(d.pidPath(name))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

func (d *runDir) forgetPID(name string) { _ = os.Remove(d.pidPath(name)) }

// remove deletes a temporary directory. A named one stays, for its logs.
func (d *runDir) remove() error {
	if !d.temporary {
		return nil
	}
	return os.RemoveAll(d.path)
}

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

// ErrNotBuilt means that the control plane has not been built, and that $KUBEBUILDER_ASSETS names no
// other.
var ErrNotBuilt = errors.New("run `make controlplane`, or set " + assetsEnv + " to a directory that has it")

// findAssets returns the directory of $KUBEBUILDER_ASSETS, else bin/k8s, and makes sure that
// nothing is missing.
func findAssets(moduleRoot string) (assets, error) {
	stated := os.Getenv(assetsEnv)
	found := assets(cmp.Or(stated, filepath.Join(moduleRoot, "bin", "k8s")))
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kubectl"} {
		if _, err := os.Stat(found.path(name)); errors.Is(err, os.ErrNotExist) {
			if stated != "" {
				return "", fmt.Errorf("%s=%s has no %s", assetsEnv, stated, name)
			}
			return "", fmt.Errorf("%s is missing: %w", found.path(name), ErrNotBuilt)
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
	found, err := findAssets(root)
	return found.path(name), err
}

func (a assets) path(name string) string { return filepath.Join(string(a), name) }

// Ports are chosen below the range from which kernels take the local ports of outgoing
// connections (from 32768 on Linux), so that none of them is taken that way before its process
// listens.
const lowestPort, highestPort = 20000, 32000

// portLocks is the directory, below that for temporary files, with a file for each port that
// was given away. The process that owns the port holds a lock on the file, as suites that run
// side by side find a port free until the process that it is for listens.
const portLocks = "cadastre-test-ports"

// ports finds TCP ports on loopback that no process listens on, each once, and keeps them from
// other processes until this one ends.
type ports struct {
	locks []*os.File
}

// next returns a port that is free.
func (p *ports) next() (int, error) {
	for range 100 {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		listener, err := net.Listen("tcp", loopback(port))
		switch {
		case errors.Is(err, syscall.EADDRINUSE):
			continue
		case err != nil:
			return 0, err
		}
		if err := listener.Close(); err != nil {
			return 0, err
		}
		if ours, err := p.lock(port); ours || err != nil {
			return port, err
		}
	}
	return 0, fmt.Errorf("100 ports between %d and %d, and none was free", lowestPort, highestPort)
}

// lock reports whether this process owns the port from now on.
func (p *ports) lock(port int) (bool, error) {
	dir := filepath.Join(os.TempDir(), portLocks)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return false, err
	}
	file, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(port)), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return false, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return false, errors.Join(ignoreTaken(err), file.Close())
	}
	p.locks = append(p.locks, file)
	return true, nil
}

func ignoreTaken(err error) error {
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil
	}
	return err
}

// release gives the ports back.
func (p *ports) release() error {
	var errs []error
	for _, file := range p.locks {
		errs = append(errs, file.Close())
	}
	p.locks = nil
	return errors.Join(errs...)
}

// several returns n ports that are free.
func (p *ports) several(n int) ([]int, error) {
	found := make([]int, n)
	for i := range found {
		port, err := p.next()
		if err != nil {
			return nil, err
		}
		found[i] = port
	}
	return found, nil
}

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
