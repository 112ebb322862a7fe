package edit

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/internal/inventory"
)

// NewDefaultClass returns the command default-class.
func NewDefaultClass(e *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "default-class NAME",
		Short: "Make a class the default of its address family, in place of the present one",
		Long: `Make a class the default of its address family, in place of the present one. A claim that
names no class is served by the one or the other at each moment: there is none at which it
finds no default class. Where the command is interrupted, run it again, or run it with the
name of the other class to go back.

It refuses to switch where the new class would not serve what the present one serves.`,
		Example:           `  kubectl ipam default-class subnets`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: e.First(&v1alpha1.IPClassList{}),
	}
	s := &switching{Env: e, dryRun: command.BindDryRun(cmd), output: command.BindOutput(cmd)}
	cmd.Flags().BoolVar(&s.force, "force", false, "switch although the new class does not serve all that the present one serves")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := s.dryRun.Check(); err != nil {
			return err
		}
		return s.run(cmd.Context(), args[0])
	}
	return cmd
}

// switching represents one run of the command.
type switching struct {
	*command.Env
	dryRun *command.DryRun
	output *command.Output
	force  bool

	client client.Client
	// classes holds the classes by their names, and target the one that is to be the default.
	classes map[string]*v1alpha1.IPClass
	target  *v1alpha1.IPClass
}

// mostSteps limits a run: a switch takes three writes, and as many to finish an earlier one.
const mostSteps = 16

func (s *switching) run(ctx context.Context, name string) error {
	k8s, err := s.Env.Client()
	if err != nil {
		return err
	}
	s.client = k8s
	if err := s.read(ctx, name); err != nil {
		return err
	}
	before, _ := inventory.DefaultOf(defaults(s.classes, s.target.Spec.IPFamily))
	if lost := notServed(s.classes[before.Name], s.target); len(lost) > 0 && !s.force {
		return command.Coded(command.ExitConflict, fmt.Errorf("IPClass %s does not serve all that the default class %s serves:\n  %s\nchange it, or switch all the same with --force", name, before.Name, strings.Join(lost, "\n  ")))
	}
	written, err := s.steps(ctx)
	if err != nil {
		return err
	}
	return s.say(before.Name, written)
}

// steps does one step after the other until none is left, and returns the number of steps that
// it wrote. A dry run does the first step, which is the switch.
func (s *switching) steps(ctx context.Context) (written int, err error) {
	name, claimed := s.target.Name, false
	for range mostSteps {
		step := nextStep(defaultsAndTarget(s.classes, s.target), name, claimed)
		if step.isNone() {
			return written, nil
		}
		done, err := s.write(ctx, step)
		switch {
		case err != nil:
			return written, err
		case *s.dryRun != command.DryRunNone:
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
	return written, command.Coded(command.ExitConflict, fmt.Errorf("the default class is changed by others all the time: run the command again once they have finished"))
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
		return command.NotFound(s.client, &v1alpha1.IPClass{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return nil
}

// write does one step, on the class as it was read. If the class has changed since then, it writes
// nothing and returns false.
func (s *switching) write(ctx context.Context, step step) (done bool, err error) {
	class := s.classes[step.class]
	if *s.dryRun == command.DryRunClient {
		return true, nil
	}
	annotations := map[string]*string{v1alpha1.AnnotationReplacesDefault: nil, v1alpha1.AnnotationDefaultClass: nil}
	if step.isDefault {
		annotations[v1alpha1.AnnotationDefaultClass] = new("true")
	}
	if step.replaces != "" {
		annotations[v1alpha1.AnnotationReplacesDefault] = &step.replaces
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": class.UID, "resourceVersion": class.ResourceVersion, "annotations": annotations,
	}})
	if err != nil {
		return false, err
	}
	err = s.client.Patch(ctx, class.DeepCopy(), client.RawPatch(types.MergePatchType, patch), s.dryRun)
	switch {
	case apierrors.IsConflict(err):
		return false, nil
	case apierrors.IsInvalid(err) && step.replaces != "": // another class became the default since the read, and the error names it
		return false, command.Coded(command.ExitConflict, err)
	}
	return err == nil, err
}

func (s *switching) say(before string, written int) error {
	target := s.target
	done := fmt.Sprintf("is the default class for %s", target.Spec.IPFamily)
	switch {
	case written == 0:
		done += " already"
	case before != "" && before != target.Name:
		done = s.dryRun.Done(done + ", in place of " + before)
	default:
		done = s.dryRun.Done(done)
	}
	printed, err := command.Outcome(target, done)
	if err != nil {
		return err
	}
	return s.Print(s.output, printed)
}
