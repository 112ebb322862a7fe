package app

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

// reportVersion is the apiVersion of the reports that commands print with -o json and -o
// yaml. Fields may be added to it; none changes its meaning or goes.
const reportVersion = "cli.ipam.cadastre.dev/v1alpha1"

func reportType(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: reportVersion, Kind: kind}
}

// report is what a command has found. Its JSON is the report for programs.
type report interface {
	// table is the report for people; wide has more columns.
	table(wide bool) *table
	// names are the objects that the report is about, such as ippool/nodes.
	names() []string
}

// drawing is a report that is not a table for people.
type drawing interface{ draw(painted bool) string }

// output is the flag -o of a command.
type output struct {
	flags     *genericclioptions.PrintFlags
	noHeaders bool
}

func bindOutput(cmd *cobra.Command) *output {
	o := &output{flags: genericclioptions.NewPrintFlags("")}
	o.flags.AddFlags(cmd)
	flag := cmd.Flag("output")
	flag.Usage = strings.Replace(flag.Usage, "(json,", "(wide, json,", 1)
	cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, "leave out the headers of the table")
	complete(cmd, "output", append([]string{"wide"}, o.flags.AllowedFormats()...)...)
	return o
}

// print prints a report in the format that was asked for.
func (e *env) print(o *output, r report) error {
	format := *o.flags.OutputFormat
	switch {
	case slices.Contains([]string{"", "wide"}, format) && !o.templated():
		if d, ok := r.(drawing); ok {
			fmt.Fprint(e.Out, d.draw(e.painted()))
			return nil
		}
		return r.table(format == "wide").write(e.Out, e.painted(), !o.noHeaders)
	case format == "name":
		for _, name := range r.names() {
			fmt.Fprintln(e.Out, name)
		}
		return nil
	}
	printer, err := o.flags.ToPrinter()
	if err != nil {
		return coded(ExitUsage, err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(text, &object.Object); err != nil {
		return err
	}
	return printer.PrintObj(object, e.Out)
}

// templated reports whether a template is given without -o, as kubectl allows.
func (o *output) templated() bool {
	t := o.flags.TemplatePrinterFlags
	return t != nil && t.TemplateArgument != nil && *t.TemplateArgument != ""
}
