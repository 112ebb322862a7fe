// The apireference command writes the part of docs/api.md that is about conditions and their
// reasons to the standard output.
package main

import (
	"fmt"
	"os"

	"github.com/cadastre-dev/cadastre/hack/apireference"
)

func main() {
	api, err := apireference.Read(".")
	if err == nil {
		err = api.Write(os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "apireference:", err)
		os.Exit(1)
	}
}
