// The reference command writes the reference of the kubectl plug-in into a directory.
package main

import (
	"fmt"
	"os"

	"github.com/cadastre-dev/cadastre/test/lint/reference"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: reference DIRECTORY")
		os.Exit(2)
	}
	if err := reference.Write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
