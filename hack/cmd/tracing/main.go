// The tracing command writes one of the tables of docs/tracing.md to the standard output:
//
//	tracing spans
//	tracing attributes
package main

import (
	"fmt"
	"os"

	"github.com/cadastre-dev/cadastre/hack/tracing"
)

func main() {
	tables := map[string]func() string{"spans": tracing.Spans, "attributes": tracing.Attributes}
	if len(os.Args) != 2 || tables[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: tracing spans|attributes")
		os.Exit(1)
	}
	fmt.Print(tables[os.Args[1]]())
}
