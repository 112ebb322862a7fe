package torture

import (
	"io"
	"time"
)

// Config holds the settings of a run.
type Config struct {
	Seed uint64
	// Storm is the time with faults, Calm the time after it with clients and without faults.
	Storm, Calm time.Duration
	// Allocations and Faults end the storm when there were that many of both, before its time is
	// over; both 0: never.
	Allocations, Faults int
	// Clients is the number of clients at the same time; Managers the number of replicas.
	Clients, Managers int
	// Pause is the time without a fault between two faults, on average; a third of that as long as
	// there are fewer faults than allocations, as shares of the wanted numbers.
	Pause time.Duration
	// Often is the kind of every other fault, the first among them; empty: none.
	Often string
	// Binary is the manager; empty: bin/test-manager. Env is for it, beside this
	// process's.
	Binary string
	Env    []string
	// Dir is the folder of the cluster's files; empty: a temporary directory.
	Dir string
	// Out is the folder to which a violation is written; empty: none.
	Out string
	// Progress gets reports on the state of the run.
	Progress io.Writer
}

// Constants of the managers under test, which the harness reckons with.
const (
	lease       = 4 * time.Second
	orphanGrace = 5 * time.Second
	retention   = 2 * time.Second
	// seats is the number of requests that the API server serves at once.
	seats = 100
)

// settling is the time after a fault in which its effects may be felt: a lease runs out, processes
// and watches begin again.
const settling = 2 * lease

func (c Config) withDefaults() Config {
	if c.Clients == 0 {
		c.Clients = 24
	}
	if c.Managers == 0 {
		c.Managers = 3
	}
	if c.Calm == 0 {
		c.Calm = 5 * time.Second
	}
	if c.Pause == 0 {
		c.Pause = time.Second
	}
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	return c
}
