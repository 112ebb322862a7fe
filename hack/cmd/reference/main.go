// The reference command writes the reference of the kubectl plug-in.
//
//	reference DIRECTORY   a page a command
//	reference rights      the table of the rights that each command asks for, to the standard output
package main

import (
	"fmt"
	"os"

	"github.com/cadastre-dev/cadastre/hack/reference"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) != 1:
		return fmt.Errorf("usage: reference DIRECTORY|rights")
	case args[0] == "rights":
		return reference.WriteRights(os.Stdout)
	default:
		return reference.Write(args[0])
	}
}
