package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"syscall"
)

// Ports are looked for below the range from which kernels take the local ports
// of outgoing connections (from 32768 on Linux), so that none of them is taken
// that way before its process listens.
const lowestPort, highestPort = 20000, 32000

// ports finds TCP ports on loopback that nobody listens on, each once.
type ports struct {
	given map[int]bool
}

// next returns a port that is free.
func (p *ports) next() (int, error) {
	if p.given == nil {
		p.given = map[int]bool{}
	}
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
		if !p.given[port] {
			p.given[port] = true
			return port, nil
		}
	}
	return 0, fmt.Errorf("100 ports between %d and %d, and none was free", lowestPort, highestPort)
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
