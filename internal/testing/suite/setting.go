package suite

import (
	"os"
	"strconv"
	"testing"
)

// Setting returns the value of an environment variable, or the usual value if it is not set.
func Setting[T any](t testing.TB, name string, usual T, parse func(string) (T, error)) T {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return usual
	}
	value, err := parse(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return value
}

// Seed returns the Setting of a seed for random choices.
func Seed(t testing.TB, name string, usual uint64) uint64 {
	t.Helper()
	return Setting(t, name, usual, func(text string) (uint64, error) { return strconv.ParseUint(text, 10, 64) })
}
