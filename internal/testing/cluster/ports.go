package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

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
