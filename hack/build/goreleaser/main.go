// goreleaser-check reads a configuration of goreleaser as goreleaser itself does: an unknown
// field is an error.
package main

import (
	"fmt"
	"os"

	"github.com/goreleaser/goreleaser/v2/pkg/config"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: goreleaser-check FILE")
		os.Exit(2)
	}
	if _, err := config.Load(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "goreleaser-check:", err)
		os.Exit(1)
	}
}
