package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
)

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
