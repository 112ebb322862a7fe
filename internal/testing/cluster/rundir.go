package cluster

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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
	absolute, err := filepath.Abs(d.path)
	if err != nil {
		return nil, err
	}
	d.path = absolute
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

func (d *runDir) notePID(name string, pid int) error {
	return os.WriteFile(d.pidPath(name), []byte(strconv.Itoa(pid)+"\n"), 0o600)
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
