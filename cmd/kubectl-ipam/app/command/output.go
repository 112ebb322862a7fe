package command

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ReportVersion is the apiVersion of the reports that commands print with -o json and -o
// yaml. Fields can be added to it; no field changes its meaning or is removed.
const ReportVersion = "cli.ipam.cadastre.dev/v1alpha1"

// ReportType returns the type of a report of this kind.
func ReportType(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: ReportVersion, Kind: kind}
}

// Report represents the result of a command. Its JSON is the report for programs.
type Report interface {
	// Table returns the report for people; wide has more columns.
	Table(wide bool) *Table
	// Names returns the objects that the report is about, such as ippool/nodes.
	Names() []string
}

// drawing represents a report that is not a table for people.
type drawing interface{ Draw(painted bool) string }

// Output holds the flag -o of a command.
type Output struct {
	Flags     *genericclioptions.PrintFlags
	noHeaders bool
}

// BindOutput binds the flags of the output.
func BindOutput(cmd *cobra.Command) *Output {
	o := &Output{Flags: genericclioptions.NewPrintFlags("")}
	o.Flags.AddFlags(cmd)
	flag := cmd.Flag("output")
	flag.Usage = strings.Replace(flag.Usage, "(json,", "(wide, json,", 1)
	cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, "leave out the headers of the table")
	Complete(cmd, "output", append([]string{"wide"}, o.Flags.AllowedFormats()...)...)
	return o
}

// RunReport makes a command print the report that run returns, and binds the flags of the output.
func (e *Env) RunReport(cmd *cobra.Command, run func(cmd *cobra.Command, args []string) (Report, error)) {
	o := BindOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		report, err := run(cmd, args)
		if err != nil {
			return err
		}
		return e.Print(o, report)
	}
}

// Print prints a report in the requested format.
func (e *Env) Print(o *Output, r Report) error {
	format := *o.Flags.OutputFormat
	switch {
	case slices.Contains([]string{"", "wide"}, format) && !o.Templated():
		if d, ok := r.(drawing); ok {
			fmt.Fprint(e.Out, d.Draw(e.Painted()))
			return nil
		}
		return r.Table(format == "wide").Write(e.Out, e.Painted(), !o.noHeaders)
	case format == "name":
		for _, name := range r.Names() {
			fmt.Fprintln(e.Out, name)
		}
		return nil
	}
	printer, err := o.Flags.ToPrinter()
	if err != nil {
		return Coded(ExitUsage, err)
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

// Templated reports whether a template is given without -o, as kubectl allows.
func (o *Output) Templated() bool {
	t := o.Flags.TemplatePrinterFlags
	return t != nil && t.TemplateArgument != nil && *t.TemplateArgument != ""
}

// Object represents an API object as a report: a program gets the object itself.
type Object struct {
	client.Object
	// Rows returns the object as a table for people.
	Rows func(wide bool) *Table
	// AsManifest leaves out the fields that a manifest does not have.
	AsManifest bool
}

// Outcome returns an object that is printed with the action that was done with it.
func Outcome(obj client.Object, done string) *Object {
	return &Object{Object: obj, Rows: func(bool) *Table { return Line("%s %s", NameOf(obj), done) }}
}

// NameOf returns the name of an object with its resource, as kubectl prints it.
func NameOf(obj client.Object) string {
	kind := KindOf(obj)
	return fmt.Sprintf("%s.%s/%s", strings.ToLower(kind.Kind), kind.Group, obj.GetName())
}

// Table implements command.Report.
func (o *Object) Table(wide bool) *Table { return o.Rows(wide) }

// Names implements command.Report.
func (o *Object) Names() []string { return []string{NameOf(o.Object)} }

// MarshalJSON implements json.Marshaler.
func (o *Object) MarshalJSON() ([]byte, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o.Object)
	if err != nil {
		return nil, err
	}
	content["apiVersion"], content["kind"] = KindOf(o.Object).ToAPIVersionAndKind()
	if o.AsManifest {
		delete(content, "status")
	}
	return json.Marshal(content)
}
