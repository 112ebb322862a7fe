package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// stopGrace is the time that a process may take to end after SIGTERM.
const stopGrace = 20 * time.Second

// Process represents a child process that can be stopped, killed, paused and started again. It
// runs in its own process group, so that Ctrl-C in a terminal reaches only its parent. Start,
// Stop, Kill and Restart must not be called concurrently for one Process; everything else may
// be.
type Process struct {
	Name string
	// Args and Env (besides the environment of this process) count from the next start on.
	Args, Env []string

	path  string
	ready func(context.Context) error
	files *runDir
	// reviveAfter makes a process that ends by itself start again, as a kubelet does, if it has
	// lived for so long: otherwise it would only end again. 0: never.
	reviveAfter time.Duration

	mu     sync.Mutex
	cmd    *exec.Cmd
	done   chan struct{} // closed when cmd has ended
	ending bool          // it was asked to end
}

// Start runs the process and waits until it is ready. That fails if the process ends or ctx is
// done before; then the process does not run.
func (p *Process) Start(ctx context.Context) error {
	p.mu.Lock()
	done, err := p.launch()
	p.mu.Unlock()
	if err != nil {
		return fmt.Errorf("starting %s: %w", p.Name, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-done:
			cancel(errors.New("it ended"))
		case <-ctx.Done():
		}
	}()
	if err := p.ready(ctx); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return errors.Join(fmt.Errorf("waiting for %s: %w; %s", p.Name, err, p.files.tail(p.Name)), p.Kill())
	}
	return nil
}

// launch runs the process. p.mu is locked.
func (p *Process) launch() (done <-chan struct{}, err error) {
	log, err := p.files.log(p.Name)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(p.path, p.Args...)
	cmd.Env = append(os.Environ(), p.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	if err := os.WriteFile(p.files.pidPath(p.Name), []byte(strconv.Itoa(cmd.Process.Pid)+"\n"), 0o600); err != nil {
		_ = cmd.Process.Kill()
	}
	ended, started := make(chan struct{}), time.Now()
	p.cmd, p.done, p.ending = cmd, ended, false
	go func() {
		how := cmd.Wait()
		_, _ = fmt.Fprintf(log, "--- %s ended after %v: %v\n", p.Name, time.Since(started).Round(time.Millisecond), how)
		_ = log.Close()
		p.files.forgetPID(p.Name)
		close(ended)
		if p.reviveAfter > 0 && time.Since(started) > p.reviveAfter {
			p.revive(cmd)
		}
	}()
	return ended, nil
}

// revive starts the process again that has ended, unless it was asked to end, or has been
// started again since.
func (p *Process) revive(ended *exec.Cmd) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ending && p.cmd == ended {
		_, _ = p.launch() // no caller can receive the error
	}
}

// Done returns a channel that is closed when the process that was last started has ended, be it
// revived after that or not. It is nil when none was started.
func (p *Process) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// Running reports whether the process was started and has not ended. A paused process is
// running.
func (p *Process) Running() bool {
	done := p.Done()
	if done == nil {
		return false
	}
	select {
	case <-done:
		return false
	default:
		return true
	}
}

// PID returns the process that was last started.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// LogPath returns the path of the file with the output of all runs of this process.
func (p *Process) LogPath() string { return p.files.logPath(p.Name) }

// Stop ends the process in good order (SIGTERM) and waits until it is gone. A paused process
// wakes up for it. A process that takes too long is killed, and that is an error.
func (p *Process) Stop() error { return p.endBy(syscall.SIGTERM) }

// Dump ends the process, a Go program, with the stacks of its goroutines at the end
// of its log (SIGQUIT).
func (p *Process) Dump() error { return p.endBy(syscall.SIGQUIT) }

func (p *Process) endBy(signal syscall.Signal) error {
	if !p.end() {
		return nil
	}
	if err := p.signal(signal, syscall.SIGCONT); err != nil {
		return err
	}
	select {
	case <-p.Done():
		return nil
	case <-time.After(stopGrace):
		return errors.Join(fmt.Errorf("%s did not end within %v of %v", p.Name, stopGrace, signal), p.Kill())
	}
}

// Kill ends the process at once (SIGKILL) and waits until it is gone.
func (p *Process) Kill() error {
	if !p.end() {
		return nil
	}
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.Done()
	return nil
}

// Pause suspends the process (SIGSTOP), and returns when it has stopped. Its connections stay
// open, and the kernel goes on accepting new ones for it.
func (p *Process) Pause() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	err := wait.PollUntilContextTimeout(context.Background(), time.Millisecond, stopGrace, true, func(context.Context) (bool, error) {
		return !p.Running() || isStopped(p.PID()), nil
	})
	if err != nil {
		return fmt.Errorf("%s did not stop within %v of SIGSTOP", p.Name, stopGrace)
	}
	return nil
}

// isStopped reports whether a process is stopped by a signal, as Linux reports it
// (proc_pid_stat(5)). If the system does not report it, the process is taken for stopped.
func isStopped(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	_, state, _ := bytes.Cut(stat, []byte(") "))
	return bytes.HasPrefix(state, []byte("T"))
}

// Resume lets a paused process go on (SIGCONT).
func (p *Process) Resume() error { return p.signal(syscall.SIGCONT) }

// Restart stops the process, if it runs, and starts it again.
func (p *Process) Restart(ctx context.Context) error {
	if err := p.Stop(); err != nil {
		return err
	}
	return p.Start(ctx)
}

// end makes sure that the process is not revived, and reports whether it runs.
func (p *Process) end() (running bool) {
	p.mu.Lock()
	p.ending = true
	p.mu.Unlock()
	return p.Running()
}

func (p *Process) signal(signals ...syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return fmt.Errorf("%s was never started", p.Name)
	}
	for _, s := range signals {
		if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("sending %v to %s: %w", s, p.Name, err)
		}
	}
	return nil
}

// Part represents etcd or kube-apiserver, which envtest starts and stops. Its methods must not
// be called concurrently for one Part.
type Part struct {
	Name string

	start, stop func() error
	files       *runDir
}

// Start runs the part again, with its old data, and waits until it is ready.
func (p *Part) Start(context.Context) error {
	if err := p.start(); err != nil {
		return fmt.Errorf("starting %s: %w; %s", p.Name, err, p.files.tail(p.Name))
	}
	return nil
}

// Stop ends the part in good order (SIGTERM) and waits until it is gone. A paused part wakes up
// for it.
func (p *Part) Stop() error { return p.end(syscall.SIGCONT) }

// Kill ends the part at once (SIGKILL) and waits until it is gone.
func (p *Part) Kill() error { return p.end(syscall.SIGKILL) }

// Restart stops the part and starts it again.
func (p *Part) Restart(ctx context.Context) error {
	if err := p.Stop(); err != nil {
		return err
	}
	return p.Start(ctx)
}

// PID returns the process that was last started; zero if none runs.
func (p *Part) PID() int {
	pid, _ := p.files.pid(p.Name)
	return pid
}

// LogPath returns the path of the file with the output of all runs of this part.
func (p *Part) LogPath() string { return p.files.logPath(p.Name) }

// end sends a first signal and lets envtest do the rest: SIGTERM, and the wait. To stop a part
// that is gone already is no error.
func (p *Part) end(first syscall.Signal) error {
	if err := p.signal(first); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	if err := p.stop(); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stopping %s: %w", p.Name, err)
	}
	p.files.forgetPID(p.Name)
	return nil
}

func (p *Part) signal(s syscall.Signal) error {
	pid, err := p.files.pid(p.Name)
	if err != nil {
		return fmt.Errorf("%w: %s is not running", syscall.ESRCH, p.Name)
	}
	if err := syscall.Kill(pid, s); err != nil {
		return fmt.Errorf("sending %v to %s: %w", s, p.Name, err)
	}
	return nil
}

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
	cmd := exec.Command("/bin/sh", "-c", killNoted, "leash", files.pathTo("pids"))
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
