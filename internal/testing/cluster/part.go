package cluster

import (
	"context"
	"errors"
	"fmt"
	"syscall"
)

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

// Pause suspends the part (SIGSTOP).
func (p *Part) Pause() error { return p.signal(syscall.SIGSTOP) }

// Resume lets a paused part go on (SIGCONT).
func (p *Part) Resume() error { return p.signal(syscall.SIGCONT) }

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
