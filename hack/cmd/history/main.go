// The history command writes the tables of the history's fields and reasons to the standard
// output.
package main

import (
	"fmt"
	"os"

	"github.com/cadastre-dev/cadastre/hack/history"
)

func main() {
	if err := history.Write(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "history:", err)
		os.Exit(1)
	}
}
