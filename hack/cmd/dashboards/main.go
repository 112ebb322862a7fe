// The dashboards command writes the dashboards for Grafana, and what their document says of them.
//
//	dashboards REPOSITORY   into config/dashboards of the repository; the document to stdout
package main

import (
	"fmt"
	"os"

	"github.com/cadastre-dev/cadastre/hack/dashboards"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: dashboards REPOSITORY")
		os.Exit(2)
	}
	document, err := dashboards.Write(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "dashboards:", err)
		os.Exit(1)
	}
	fmt.Print(document)
}
