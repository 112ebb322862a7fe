package command

import (
	"fmt"
	"math"

	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// exactDigits limits the digits of a number in a table.
const exactDigits = 12

// Readable returns a number of addresses for people: exact if it is short, else as a power of two
// if it is one, else rounded to two digits. Reports for programs are always exact.
func Readable(n space.Count) string {
	exact := n.String()
	if len(exact) <= exactDigits {
		return exact
	}
	if power := math.Log2(n.Float64()); power == math.Trunc(power) && isPowerOfTwo(n, int(power)) {
		return fmt.Sprintf("2^%d", int(power))
	}
	return fmt.Sprintf("%.1e", n.Float64())
}

// isPowerOfTwo reports whether n is exactly 2^power.
func isPowerOfTwo(n space.Count, power int) bool {
	m := space.CountOf64(1)
	for range power {
		m = m.Add(m)
	}
	return m == n
}

// Percent returns a share for people. It is 0% only if there is nothing, and 100% only if there
// is all.
func Percent(part, of space.Count) string {
	switch share := part.Float64() / of.Float64(); {
	case part.IsZero() || of.IsZero():
		return "0%"
	case part.Cmp(of) >= 0:
		return "100%"
	case share < 0.01:
		return "<1%"
	case share > 0.99:
		return ">99%"
	default:
		return fmt.Sprintf("%d%%", part.Percent(of))
	}
}

// AddressesOf returns a number of addresses with the noun.
func AddressesOf(n space.Count) string {
	if n == space.CountOf64(1) {
		return "1 address"
	}
	return Readable(n) + " addresses"
}
