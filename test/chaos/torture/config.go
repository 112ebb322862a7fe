package torture

import (
	"io"
	"time"
)

// Config says what to run.
type Config struct {
	Seed uint64
	// Storm is for how long faults are injected, Calm for how long clients go on
	// without.
	Storm, Calm time.Duration
	// Allocations and Faults end the storm when there were that many of both, before
	// its time is over; both 0: never.
	Allocations, Faults int
	// Clients is how many work at the same time; Managers how many replicas run.
	Clients, Managers int
	// Pause is how long there is nothing between two faults, on average; a third of
	// that as long as there are fewer faults than allocations, of as many as are wanted.
	Pause time.Duration
	// Often is the kind of every other fault, the first among them; empty: none.
	Often string
	// Binary is the manager; empty: bin/manager. Env is for it, beside this
	// process's.
	Binary string
	Env    []string
	// Dir is where the cluster keeps its files; empty: a temporary directory.
	Dir string
	// Out is where a violation is written; empty: nowhere.
	Out string
	// Progress is told how it goes.
	Progress io.Writer
}

// Constants of the managers under test, which the harness reckons with.
const (
	lease       = 4 * time.Second
	orphanGrace = 5 * time.Second
	retention   = 2 * time.Second
	// seats is how many requests the API server serves at once.
	seats = 100
)

// settling is for how long after a fault its effects may be felt: a lease runs
// out, processes and watches begin anew.
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
