// Package terminal prepares texts for a terminal.
package terminal

import (
	"strconv"
	"strings"
	"unicode"
)

// Printable returns a text of foreign origin, such as the name of a user, without the characters
// that a terminal would obey: control characters, and marks that turn the direction of writing
// (Unicode's categories Cc and Cf). It shows each of them as in Go, such as \x1b.
func Printable(text string) string { return spelled(text, "") }

// PrintableLines does the same as Printable for a text of several lines.
func PrintableLines(text string) string { return spelled(text, "\n\t") }

func spelled(text, but string) string {
	obeyed := func(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf) && !strings.ContainsRune(but, r) }
	if !strings.ContainsFunc(text, obeyed) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if obeyed(r) {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
