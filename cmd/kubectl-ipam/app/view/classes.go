package view

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// NewClasses returns the command classes.
func NewClasses(e *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "classes [NAME]",
		Short: "Show the classes that your namespace can use, and their free space",
		Long: `Show the classes that your namespace can use: the lengths of their blocks, the free addresses
of the pools behind them, and the block that the next claim would get. Each class is asked in a
dry run of a claim, so a class that another project owns is left out.

If you may not list classes, name one, or see the names that the operator gives.`,
		Example: `  # All classes that namespace team-a can use
  kubectl ipam classes -n team-a

  # One class, also without the right to read it
  kubectl ipam classes subnets`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: e.First(&v1alpha1.IPClassList{}),
	}
	e.RunReport(cmd, func(cmd *cobra.Command, args []string) (command.Report, error) {
		c, namespace, err := e.ClientAndNamespace()
		if err != nil {
			return nil, err
		}
		quiet, err := e.QuietClient()
		if err != nil {
			return nil, err
		}
		a := &classAsker{client: quiet, namespace: namespace}
		if len(args) > 0 {
			return a.one(cmd.Context(), args[0])
		}
		report, err := a.all(cmd.Context())
		if command.CodeOf(err) == command.ExitForbidden { // the answer to a dry run warns of their names
			_ = c.Create(cmd.Context(), newProbe(namespace, ipam.NoLength, v1alpha1.IPClaimSpec{ClassName: "kubectl-ipam-classes"}), client.DryRunAll)
		}
		if len(report.Classes) == mostProbes {
			e.Note("the first %d classes are shown: name another one to ask for it alone", mostProbes)
		}
		return report, err
	})
	return cmd
}

// ClassReport represents the output of `classes`.
type ClassReport struct {
	metav1.TypeMeta `json:",inline"`
	Classes         []ClassUse `json:"classes"`
}

// ClassUse represents a class as a namespace can use it. Of a class that the caller cannot read, only
// the answer to a dry run is known.
type ClassUse struct {
	Name     string `json:"name"`
	Default  bool   `json:"default,omitempty"`
	IPFamily string `json:"ipFamily,omitempty"`
	// Lengths are the prefix lengths that a claim can have, such as /20-/28; empty: those of the pools.
	// DefaultLength is that of a claim that states none.
	Lengths       string `json:"lengths,omitempty"`
	DefaultLength string `json:"defaultLength,omitempty"`
	// Free is the number of free addresses of the pools that the namespace can use, a decimal string.
	Free string `json:"free"`
	// LargestFreePrefix is the prefix length of the largest free block, as in /20.
	LargestFreePrefix string `json:"largestFreePrefix,omitempty"`
	// Next is the block that a claim would get now; if there is none, Message has the reason.
	Next    string `json:"next,omitempty"`
	Message string `json:"message,omitempty"`
}

// classAsker asks what claims of a namespace would get of classes.
type classAsker struct {
	client    client.Client
	namespace string
}

// all returns the classes that the namespace can use, at most mostProbes.
func (a *classAsker) all(ctx context.Context) (*ClassReport, error) {
	report := &ClassReport{TypeMeta: command.ReportType("ClassReport"), Classes: []ClassUse{}}
	classes := &v1alpha1.IPClassList{}
	err := a.client.List(ctx, classes)
	switch {
	case apierrors.IsForbidden(err):
		return report, command.Coded(command.ExitForbidden, fmt.Errorf("you may not list ipclasses: name the class that you want to see: %w", err))
	case err != nil:
		return report, err
	}
	for i := range classes.Items {
		if len(report.Classes) == mostProbes {
			break
		}
		use, isUsable, err := a.ask(ctx, &classes.Items[i])
		if err != nil {
			return report, err
		}
		if isUsable {
			report.Classes = append(report.Classes, use)
		}
	}
	return report, nil
}

// one returns one class, whether or not the caller can read it. An error states that the namespace
// cannot use it.
func (a *classAsker) one(ctx context.Context, name string) (*ClassReport, error) {
	class := &v1alpha1.IPClass{}
	if err := a.client.Get(ctx, client.ObjectKey{Name: name}, class); err != nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
		return nil, err
	}
	class.Name = name
	use, isUsable, err := a.ask(ctx, class)
	switch {
	case err != nil:
		return nil, err
	case !isUsable:
		return nil, command.Coded(command.ExitNotFound, fmt.Errorf("IPClass %s: %s", name, use.Message))
	}
	return &ClassReport{TypeMeta: command.ReportType("ClassReport"), Classes: []ClassUse{use}}, nil
}

// ask asks for a block of a class in a dry run, and reports whether the namespace can use the class.
func (a *classAsker) ask(ctx context.Context, class *v1alpha1.IPClass) (use ClassUse, isUsable bool, err error) {
	use = useOf(class)
	claim := classProbe(a.namespace, class)
	if err := a.client.Create(ctx, claim, client.DryRunAll); err != nil {
		switch command.CodeOf(err) {
		case command.ExitUsage, command.ExitExhausted, command.ExitLimit: // the answer names no pools
			use.Message = err.Error()
			return use, true, nil
		}
		return use, false, fmt.Errorf("asking for a block of IPClass %s in a dry run: %w", class.Name, err)
	}
	use.Next = claim.Status.AllocatedCIDR
	use.addCandidates(class, claim)
	ready := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ConditionReady)
	if use.Next != "" || ready == nil {
		return use, true, nil
	}
	use.Message = ready.Message
	return use, ready.Reason != v1alpha1.ReasonClassNotFound, nil
}

// useOf returns what the object states, if the caller can read it.
func useOf(class *v1alpha1.IPClass) ClassUse {
	use := ClassUse{Name: class.Name, IPFamily: string(class.Spec.IPFamily), Default: class.Annotations[v1alpha1.AnnotationDefaultClass] == "true"}
	read, errs := convert.Class(class)
	if class.UID == "" || len(errs) > 0 {
		return use
	}
	if class.Spec.AllowedPrefixLengths != nil {
		use.Lengths = fmt.Sprintf("/%d-/%d", read.Lengths.Min, min(read.Lengths.Max, read.Family.Bits()))
	}
	if read.Length != ipam.NoLength {
		use.DefaultLength = fmt.Sprintf("/%d", read.Length)
	}
	return use
}

// addCandidates adds what is free in the pools that an answer names. If it does not name all, the sum is
// that of the class, if the caller can read it.
func (u *ClassUse) addCandidates(class *v1alpha1.IPClass, claim *v1alpha1.IPClaim) {
	free := space.Count{}
	for _, pool := range claim.Status.Candidates {
		if n, ok := space.ParseCount(pool.Available); ok {
			free = free.Add(n)
		}
		if u.LargestFreePrefix == "" || pool.LargestFreePrefix != "" && comparePrefixes(pool.LargestFreePrefix, u.LargestFreePrefix) < 0 {
			u.LargestFreePrefix = pool.LargestFreePrefix
		}
	}
	u.Free = free.String()
	if capacity := class.Status.Capacity; claim.Status.CandidatesOmitted > 0 && capacity != nil {
		u.Free = capacity.Available
	}
}

// comparePrefixes compares prefix lengths as text, such as /8 and /24.
func comparePrefixes(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }

// Names implements command.Report.
func (r *ClassReport) Names() []string {
	names := make([]string, len(r.Classes))
	for i, class := range r.Classes {
		names[i] = class.Name
	}
	return names
}

// Table implements command.Report.
func (r *ClassReport) Table(wide bool) *command.Table {
	t := &command.Table{Headers: []string{"CLASS", "FAMILY", "LENGTHS", "DEFAULT LENGTH", "FREE", "LARGEST FREE", "NEXT"}, Empty: "There are no classes that this namespace can use."}
	hasMessages := wide || slices.ContainsFunc(r.Classes, func(c ClassUse) bool { return c.Message != "" })
	if hasMessages {
		t.Headers = append(t.Headers, "MESSAGE")
	}
	for _, class := range r.Classes {
		name := class.Name
		if class.Default {
			name += " (default)"
		}
		cells := append(command.Texts(name, command.OrNone(class.IPFamily), command.OrNone(class.Lengths), command.OrNone(class.DefaultLength)),
			number(class.Free), command.Text("%s", command.OrNone(class.LargestFreePrefix)), command.Text("%s", command.OrNone(class.Next)))
		if hasMessages {
			cells = append(cells, command.Text("%s", class.Message))
		}
		t.Add(cells...)
	}
	return t
}
