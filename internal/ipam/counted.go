package ipam

import (
	"fmt"
	"strings"
)

// Counted is a number with its noun, for messages: 1 block, 2 blocks, 3 addresses.
func Counted[N int | int64](n N, noun string) string { return Numbered(n, noun, Plural(noun)) }

// Plural is the plural of a noun.
func Plural(noun string) string {
	if strings.HasSuffix(noun, "s") {
		return noun + "es"
	}
	return noun + "s"
}

// Numbered is a number with what there is one or more of: 1 claim waits, 2 claims wait.
func Numbered[N int | int64](n N, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}
