// Command splice replaces a generated part of a document by its standard input:
//
//	splice docs/benchmarks.md PART <new.md
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/cadastre-dev/cadastre/test/perf/bench/document"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "splice:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: splice FILE PART <new.md")
	}
	content, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	return document.SpliceFile(args[0], args[1], string(content))
}
