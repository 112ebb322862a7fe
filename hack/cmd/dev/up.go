package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// superviseCommand is the command that up runs in the background.
const superviseCommand = "supervise"

// readyFD is the file descriptor to which the supervisor writes when all is ready.
const readyFD = 3

// up starts the supervisor in a separate session and shows its output. It returns when the
// supervisor is ready or has given up.
func up(ctx context.Context, at place, with wanted) error {
	free, err := take(at)
	if err != nil {
		return err
	}
	free.release()
	begin := time.Now()
	supervisor, err := launch(at, with)
	if err != nil {
		return err
	}
	ready := make(chan error, 1)
	go func() { ready <- supervisor.follow(os.Stdout) }()
	select {
	case err = <-ready:
	case <-ctx.Done():
		_ = supervisor.cmd.Process.Signal(syscall.SIGTERM)
		err = errors.Join(<-ready, ctx.Err())
	}
	if err != nil {
		_ = supervisor.cmd.Wait()
		return err
	}
	fmt.Printf("Cadastre is up after %.1f s.\n", time.Since(begin).Seconds())
	fmt.Printf("\nTry:\n%s  kubectl get ipclasses,ippools,ipclaims,ipallocations -A\n", environment(at))
	fmt.Printf("\nLogs are in %s. `make down` stops it.\n", at.shown(at.join("logs")))
	return nil
}

// background represents a supervisor that is starting.
type background struct {
	cmd *exec.Cmd
	// says carries its output until it is ready, and ready gets a byte then.
	says, ready *os.File
	log         string
}

func launch(at place, with wanted) (*background, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	says, say, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	ready, readyWriter, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(at.join("supervisor.log"))
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, append([]string{superviseCommand}, with.args()...)...)
	cmd.Dir = at.moduleRoot
	cmd.Stdout, cmd.Stderr = say, log
	cmd.ExtraFiles = []*os.File{readyWriter}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	for _, file := range []*os.File{say, readyWriter, log} {
		_ = file.Close() // its end is open in the supervisor
	}
	return &background{cmd: cmd, says: says, ready: ready, log: at.shown(log.Name())}, nil
}

// follow shows the output of the supervisor until it is ready or ends.
func (b *background) follow(out io.Writer) error {
	if _, err := io.Copy(out, b.says); err != nil {
		return err
	}
	if n, _ := b.ready.Read(make([]byte, 1)); n == 0 {
		return fmt.Errorf("it did not get ready: see %s", b.log)
	}
	return nil
}

// environment returns the text that a user must type before kubectl.
func environment(at place) string {
	dir := os.Getenv("KUBEBUILDER_ASSETS")
	if dir == "" {
		dir = filepath.Join(at.moduleRoot, "bin", "k8s")
	}
	return fmt.Sprintf("  export KUBECONFIG=%s PATH=%s:$PATH\n", at.join("kubeconfig"), dir)
}
