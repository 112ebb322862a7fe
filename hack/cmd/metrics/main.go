// The metrics command writes the table of metrics to the standard output.
package main

import (
	"fmt"
	"os"

	"github.com/cadastre-dev/cadastre/hack/metrics"
)

func main() {
	if err := metrics.Write(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "metrics:", err)
		os.Exit(1)
	}
}
