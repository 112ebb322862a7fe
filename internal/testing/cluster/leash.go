package cluster

import (
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// killNoted is a script that waits for the end of its standard input and then kills the process
// groups that are noted in the directory $1.
const killNoted = `cat >/dev/null
for noted in "$1"/*.pid; do
	[ -e "$noted" ] && kill -s KILL -- "-$(cat "$noted")"
done`

// leash holds a shell that holds the other end of a pipe. When this process ends, be it by a
// panic, the timeout of `go test` or kill -9, the kernel closes the pipe and the shell kills
// the processes that are still noted in the run directory. (The alternative, a parent death
// signal, is sent when the thread that started the child ends, not the process, and exists on
// Linux alone.) A leash that is not referred to any more is released as well.
type leash struct {
	cmd  *exec.Cmd
	hold io.Closer
}

func newLeash(files *runDir) (*leash, error) {
	cmd := exec.Command("/bin/sh", "-c", killNoted, "leash", files.in("pids"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	hold, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the leash: %w", err)
	}
	return &leash{cmd: cmd, hold: hold}, nil
}

// release ends the leash. It kills the processes that are still noted.
func (l *leash) release() {
	_ = l.hold.Close()
	_ = l.cmd.Wait()
}
