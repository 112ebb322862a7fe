// The chart command writes the parts of a Helm chart that are generated.
//
//	chart DIRECTORY MANIFEST...   the templates, from the output of kustomize; and from the
//	                              operator's flags, the schema of values and the table in the README
package main

import (
	"fmt"
	"os"

	"github.com/cadastre-dev/cadastre/hack/chart"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("usage: chart DIRECTORY MANIFEST")
	}
	var manifests []byte
	for _, path := range args[1:] {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		manifests = append(append(manifests, "---\n"...), text...)
	}
	if err := chart.WriteTemplates(args[0], manifests); err != nil {
		return err
	}
	if err := chart.WriteSchema(args[0]); err != nil {
		return err
	}
	return chart.WriteReadme(args[0])
}
