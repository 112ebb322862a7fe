package edit

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// NewDefaultClass returns the command default-class.
func NewDefaultClass(e *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "default-class NAME",
		Short: "Make a class the default of its address family, in place of the present one",
		Long: `Make a class the default of its address family, in place of the present one. A claim that
names no class is served by the one or the other at each moment: there is none at which it
finds no default class. If the command is interrupted, run it again, or run it with the
name of the other class to go back.

It refuses to switch if the new class would not serve all claims of the present one.`,
		Example:           `  kubectl ipam default-class subnets`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: e.First(&v1alpha1.IPClassList{}),
	}
	s := &switching{editing: bindEditing(e, cmd)}
	cmd.Flags().BoolVar(&s.force, "force", false, "switch although the new class does not serve all that the present one serves")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return s.run(cmd.Context(), args[0]) }
	return cmd
}

// switching represents one run of the command.
type switching struct {
	*editing
	force bool

	// classes holds the classes by their names, and target the one that is to be the default.
	classes map[string]*v1alpha1.IPClass
	target  *v1alpha1.IPClass
	// family holds the classes of the target's family.
	family []inventory.ClassEntry
}

// mostSteps limits a run: a switch takes three writes, and as many to finish an earlier one.
const mostSteps = 16

func (s *switching) run(ctx context.Context, name string) error {
	if err := s.connect(); err != nil {
		return err
	}
	if err := s.read(ctx, name); err != nil {
		return err
	}
	before, _ := inventory.DefaultOf(annotatedOf(s.family))
	if lost := notServed(s.classes[before.Name], s.target); len(lost) > 0 && !s.force {
		return command.Coded(command.ExitConflict, fmt.Errorf("IPClass %s does not serve all that the default class %s serves:\n  %s\nchange it, or switch nevertheless with --force", name, before.Name, strings.Join(lost, "\n  ")))
	}
	written, err := s.steps(ctx)
	if err != nil {
		return err
	}
	return s.report(before.Name, written)
}

// steps does one step after the other until none is left, and returns the number of steps that
// it wrote. A dry run does the first step, which is the switch.
func (s *switching) steps(ctx context.Context) (written int, err error) {
	name, claimed := s.target.Name, false
	for range mostSteps {
		step := nextStep(s.family, name, claimed)
		if step.isNone() {
			return written, nil
		}
		done, err := s.write(ctx, step)
		switch {
		case err != nil:
			return written, err
		case s.dryRun != command.DryRunNone:
			return 1, nil
		case done && step.withdrawn != "":
			return written, command.Coded(command.ExitConflict, fmt.Errorf("IPClass %s was made the default class at the same time: see whether that is right, or run the command again", step.withdrawn))
		case done:
			written++
			claimed = claimed || step.class == name && step.isDefault
		}
		if err := s.read(ctx, name); err != nil {
			return written, err
		}
	}
	return written, command.Coded(command.ExitConflict, fmt.Errorf("other clients keep changing the default class: run the command again once they have finished"))
}

// read lists the classes, with the one that is to be the default.
func (s *switching) read(ctx context.Context, name string) error {
	list := &v1alpha1.IPClassList{}
	if err := s.client.List(ctx, list); err != nil {
		return err
	}
	s.classes = make(map[string]*v1alpha1.IPClass, len(list.Items))
	for i := range list.Items {
		s.classes[list.Items[i].Name] = &list.Items[i]
	}
	if s.target = s.classes[name]; s.target == nil {
		return command.NotFound(&v1alpha1.IPClass{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	s.family = nil
	for _, name := range slices.Sorted(maps.Keys(s.classes)) {
		if class := s.classes[name]; class.Spec.IPFamily == s.target.Spec.IPFamily {
			entry, _ := inventory.ReadClass(class) // one that is not valid counts by its annotations
			entry.Name = name
			s.family = append(s.family, entry)
		}
	}
	return nil
}

// write does one step, on the class as it was read. If the class has changed since then, it writes
// nothing and returns false.
func (s *switching) write(ctx context.Context, step step) (done bool, err error) {
	if s.dryRun == command.DryRunClient {
		return true, nil
	}
	class := s.classes[step.class].DeepCopy()
	delete(class.Annotations, v1alpha1.AnnotationDefaultClass)
	delete(class.Annotations, v1alpha1.AnnotationReplacesDefault)
	if step.isDefault {
		metav1.SetMetaDataAnnotation(&class.ObjectMeta, v1alpha1.AnnotationDefaultClass, "true")
	}
	if step.replaces != "" {
		metav1.SetMetaDataAnnotation(&class.ObjectMeta, v1alpha1.AnnotationReplacesDefault, step.replaces)
	}
	patch := client.MergeFromWithOptions(s.classes[step.class], client.MergeFromWithOptimisticLock{})
	err = s.client.Patch(ctx, class, patch, s.patchOptions())
	switch {
	case apierrors.IsConflict(err):
		return false, nil
	case apierrors.IsInvalid(err) && step.replaces != "": // another class became the default since the read, and the error names it
		return false, command.Coded(command.ExitConflict, err)
	}
	return err == nil, err
}

func (s *switching) report(before string, written int) error {
	done := fmt.Sprintf("is the default class for %s", s.target.Spec.IPFamily)
	if written == 0 {
		return s.say(s.target, done+" already")
	}
	if before != "" && before != s.target.Name {
		done += ", in place of " + before
	}
	return s.say(s.target, s.dryRun.Done(done))
}

// step represents one write of a switch: the annotations that a class is to have.
type step struct {
	class     string
	isDefault bool
	replaces  string
	// withdrawn names the class that has become the default at the same time; the step
	// then takes the annotations off again.
	withdrawn string
}

func (s step) isNone() bool { return s.class == "" }

// nextStep returns the next write that makes the target the default class of its family; none
// when nothing is left to do. At each moment between two writes either the class that counted
// before or the target counts, as inventory.DefaultOf decides. Admission allows each write: it
// refuses a second default, except one that replaces the only other.
//
//	old ─ default              new ─
//	old ─ default              new ─ default, replaces old     new counts from here on
//	old ─                      new ─ default, replaces old
//	old ─                      new ─ default
//
// It continues from the state in which an earlier run, or a person, has left the classes. Runs
// can overlap, also for different classes: a run removes the annotation of a class only if
// another class counts and the class is as it was read, and never that of the class that counts.
// So a switch that was begun is finished before the next one, in the other direction too. If
// this run has made the target the default and another class counts, a second switch was begun
// at the same time or after it, and this run leaves that switch alone.
func nextStep(classes []inventory.ClassEntry, target string, claimed bool) step {
	annotated := annotatedOf(classes)
	counting, exists := inventory.DefaultOf(annotated)
	switch {
	case !exists:
		return step{class: target, isDefault: true}
	case counting.Name != target && claimed:
		return step{class: target, withdrawn: counting.Name}
	}
	for _, other := range annotated {
		if other.Name != counting.Name && counts(annotated, other.Name, counting.Name, target) {
			return step{class: other.Name}
		}
	}
	switch {
	case counting.Replaces != "":
		return step{class: counting.Name, isDefault: true}
	case counting.Name != target:
		return step{class: target, isDefault: true, replaces: counting.Name}
	}
	return step{}
}

// counts reports whether one of these counts when one class is no longer annotated.
func counts(annotated []inventory.ClassEntry, without string, these ...string) bool {
	counting, _ := inventory.DefaultOf(slices.DeleteFunc(slices.Clone(annotated), named(without)))
	return slices.Contains(these, counting.Name)
}

func named(name string) func(inventory.ClassEntry) bool {
	return func(c inventory.ClassEntry) bool { return c.Name == name }
}

// annotatedOf returns the classes that are annotated as the default.
func annotatedOf(classes []inventory.ClassEntry) []inventory.ClassEntry {
	return slices.DeleteFunc(slices.Clone(classes), func(c inventory.ClassEntry) bool { return !c.Default })
}

// notServed describes the claims without a class name that the present default class serves, and
// that the next one would not serve. The present class may be nil.
func notServed(before, next *v1alpha1.IPClass) []string {
	if before == nil || before.Name == next.Name {
		return nil
	}
	present, errs := convert.Class(before)
	coming, invalid := convert.Class(next)
	if len(errs) > 0 { // it serves nothing
		return nil
	}
	if len(invalid) > 0 {
		return []string{fmt.Sprintf("it is not valid: %v", invalid.ToAggregate())}
	}
	return append(notServedNow(next), refused(before.Name, present, coming)...)
}

// refused describes the claims that the coming class refuses and the present one does not.
func refused(name string, present, coming ipam.Class) []string {
	var lost []string
	if present.Length != ipam.NoLength && coming.Length == ipam.NoLength {
		lost = append(lost, "it has no defaultPrefixLength: claims that set no prefixLength would be refused")
	}
	if coming.Lengths.Min > present.Lengths.Min || coming.Lengths.Max < present.Lengths.Max {
		lost = append(lost, fmt.Sprintf("it allows /%d to /%d, and %s allows /%d to /%d: claims for other lengths would be refused",
			coming.Lengths.Min, coming.Lengths.Max, name, present.Lengths.Min, present.Lengths.Max))
	}
	if coming.Visibility != ipam.VisibilityShared && (coming.Visibility != present.Visibility || coming.Project != present.Project) {
		lost = append(lost, fmt.Sprintf("its visibility is %s: claims of other namespaces would find no default class", ofProject(coming)))
	}
	if present.AllowRetain && !coming.AllowRetain {
		lost = append(lost, "it does not allow Retain: claims that ask for it would be refused")
	}
	if present.OnExhaustion != ipam.OnExhaustionReject && coming.OnExhaustion == ipam.OnExhaustionReject {
		lost = append(lost, "its onExhaustion is Reject: claims for which there is no room would be refused, and not wait")
	}
	return lost
}

// notServedNow explains why a class serves no claims at present.
func notServedNow(class *v1alpha1.IPClass) []string {
	ready := meta.FindStatusCondition(class.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case !class.DeletionTimestamp.IsZero():
		return []string{"it is being deleted"}
	case class.Status.Pools == 0 && (ready == nil || ready.Reason == v1alpha1.ReasonNoPools):
		return []string{"no IPPool that is ready backs it: claims would wait"}
	}
	return nil
}

func ofProject(class ipam.Class) string {
	if class.Project == "" {
		return string(class.Visibility)
	}
	return fmt.Sprintf("%s, of project %s", class.Visibility, class.Project)
}
