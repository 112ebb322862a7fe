package mutants

// switchSource is the source of the package from which instrumented code learns which mutant is on.
const switchSource = `// Package mutantswitch turns mutants on, by the environment of a test's process.
package mutantswitch

import (
	"os"
	"strconv"
	"sync/atomic"
)

// MUTANT is the number of the mutant that is on. MUTANTS_REACHED is a file that gets the
// number of each mutant that is reached, once.
var (
	active, _ = strconv.Atoi(os.Getenv("MUTANT"))
	reached   = open(os.Getenv("MUTANTS_REACHED"))
	seen      [1 << 16]atomic.Bool
)

func open(name string) *os.File {
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	return f
}

// On reports whether a mutant is on.
func On(id int) bool {
	if reached != nil && !seen[id].Swap(true) {
		if _, err := reached.WriteString(strconv.Itoa(id) + "\n"); err != nil {
			panic(err)
		}
	}
	return id == active
}

// NoError returns nil if the mutant is on, and err otherwise.
func NoError(id int, err error) error {
	if On(id) {
		return nil
	}
	return err
}

type integer interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr
}

type number interface{ integer | ~float32 | ~float64 }

func pick[T any](id int, was, becomes func() T) T {
	if On(id) {
		return becomes()
	}
	return was()
}

func Add[T number](id int, x, y T) T { return pick(id, func() T { return x + y }, func() T { return x - y }) }
func Sub[T number](id int, x, y T) T { return pick(id, func() T { return x - y }, func() T { return x + y }) }
func Mul[T number](id int, x, y T) T { return pick(id, func() T { return x * y }, func() T { return x / y }) }
func Quo[T number](id int, x, y T) T { return pick(id, func() T { return x / y }, func() T { return x * y }) }
func Shl[T, U integer](id int, x T, y U) T { return pick(id, func() T { return x << y }, func() T { return x >> y }) }
func Shr[T, U integer](id int, x T, y U) T { return pick(id, func() T { return x >> y }, func() T { return x << y }) }
`
