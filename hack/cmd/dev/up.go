package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
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

// downTimeout bounds the wait for a supervisor to end all its processes.
const downTimeout = 2 * time.Minute

// down signals the supervisor to end, and waits until the supervisor and all its processes are
// gone.
func down(ctx context.Context, at place) error {
	free, err := take(at)
	if err == nil {
		free.release()
		fmt.Println("Nothing is running.")
		return nil
	}
	if !errors.Is(err, errRunning) {
		return err
	}
	l, err := openLock(at)
	if err != nil {
		return err
	}
	defer l.release()
	supervisor, err := l.holder()
	if err != nil {
		return fmt.Errorf("reading who runs it: %w", err)
	}
	begin := time.Now()
	fmt.Print("stopping the managers and the control plane ... ")
	if err := syscall.Kill(supervisor, syscall.SIGTERM); err != nil {
		return fmt.Errorf("telling process %d to end: %w", supervisor, err)
	}
	ctx, cancel := context.WithTimeout(ctx, downTimeout)
	defer cancel()
	if err := l.await(ctx); err != nil {
		return fmt.Errorf("waiting for process %d to end: %w", supervisor, err)
	}
	fmt.Printf("%.1f s\n", time.Since(begin).Seconds())
	return nil
}

// lock represents the lock that the process that runs the cluster of a place holds, for as long
// as it lives. Its file has the number of that process. (A number alone would not show whether
// the process still lives, or whether another process has that number now.)
type lock struct{ file *os.File }

var errRunning = errors.New("it is running already: `make down` stops it")

func openLock(at place) (lock, error) {
	file, err := os.OpenFile(at.join("supervisor.pid"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return lock{}, err
	}
	return lock{file}, nil
}

// take takes the lock. It returns errRunning if another process has it.
func take(at place) (lock, error) {
	l, err := openLock(at)
	if err != nil {
		return lock{}, err
	}
	if err := syscall.Flock(l.fd(), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		l.release()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return lock{}, errRunning
		}
		return lock{}, fmt.Errorf("locking %s: %w", l.file.Name(), err)
	}
	return l, nil
}

// sign writes this process's number into the lock that it has taken.
func (l lock) sign() error {
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err := l.file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// holder returns the number of the process that signed last.
func (l lock) holder() (int, error) {
	text, err := io.ReadAll(io.NewSectionReader(l.file, 0, 20))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// await blocks until no other process holds the lock.
func (l lock) await(ctx context.Context) error {
	free := make(chan error, 1)
	go func() { free <- syscall.Flock(l.fd(), syscall.LOCK_EX) }()
	select {
	case err := <-free:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l lock) fd() int { return int(l.file.Fd()) }

func (l lock) release() { _ = l.file.Close() }

// supervise runs a cluster until a signal (SIGTERM) ends it. It owns all the
// processes; its own log is its standard error.
func supervise(ctx context.Context, at place, wants wanted) error {
	held, err := take(at)
	if err != nil {
		return err
	}
	defer held.release()
	if err := held.sign(); err != nil {
		return err
	}
	with := wants.options(at)
	with.Progress = io.MultiWriter(os.Stdout, os.Stderr)
	running, err := cluster.Start(ctx, with)
	if err != nil {
		fmt.Println(err) // to up; main writes it into the log
		return err
	}
	if err := reportReady(); err != nil {
		return errors.Join(err, running.Stop())
	}
	<-ctx.Done()
	return running.Stop()
}

// reportReady notifies up, and closes the standard output.
func reportReady() error {
	ready := os.NewFile(readyFD, "ready")
	if _, err := ready.Write([]byte{1}); err != nil {
		return err
	}
	return errors.Join(ready.Close(), os.Stdout.Close())
}
