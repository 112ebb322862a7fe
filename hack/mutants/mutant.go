package mutants

import (
	"fmt"
	"strings"
)

// Mutant represents one small change of the code.
type Mutant struct {
	// ID is the number that turns the mutant on; the first is 1.
	ID int
	// File is relative to the module, with slashes; Line counts from 1, and Column in
	// bytes.
	File         string
	Line, Column int
	// Function is the name of the function with the mutant, with its receiver's type.
	Function string
	// Before and After are the text before and after the change, on one line.
	Before, After string
}

// String returns the mutant as it is listed.
func (m Mutant) String() string {
	return fmt.Sprintf("%s:%d %s: %s → %s", m.File, m.Line, m.Function, m.Before, m.After)
}

// Key returns a name of the mutant by its change, which stays the same when lines above it come
// or go.
func (m Mutant) Key() string {
	return fmt.Sprintf("%s %s: %s → %s", m.File, m.Function, m.Before, m.After)
}

// oneLine returns source text without line breaks and indentation.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
