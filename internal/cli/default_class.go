package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/catalogue"
)

func newDefaultClass(e *env) *cobra.Command {
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
		ValidArgsFunction: e.first(&v1alpha1.IPClassList{}),
	}
	s := &switching{env: e, dryRun: bindDryRun(cmd), output: bindOutput(cmd)}
	cmd.Flags().BoolVar(&s.force, "force", false, "switch although the new class does not serve all that the present one serves")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := s.dryRun.check(); err != nil {
			return err
		}
		return s.run(cmd.Context(), args[0])
	}
	return cmd
}

// switching is one run of the command.
type switching struct {
	*env
	dryRun *dryRun
	output *output
	force  bool

	client client.Client
	// claimed reports whether this run has made the class the default.
	claimed bool
}

// mostSteps bounds a run: a switch takes three writes, and as many to finish an earlier one.
const mostSteps = 16

func (s *switching) run(ctx context.Context, name string) error {
	k8s, err := s.env.client()
	if err != nil {
		return err
	}
	s.client = k8s
	classes, err := s.classes(ctx)
	if err != nil {
		return err
	}
	target := classes[name]
	if target == nil {
		return notFound(s.client, &v1alpha1.IPClass{ObjectMeta: metaNamed(name)})
	}
	before, _ := catalogue.DefaultOf(defaults(classes, target.Spec.IPFamily))
	if lost := notServed(classes[before.Name], target); len(lost) > 0 && !s.force {
		return coded(ExitConflict, fmt.Errorf("IPClass %s does not serve all that the default class %s serves:\n  %s\nchange it, or switch all the same with --force", name, before.Name, strings.Join(lost, "\n  ")))
	}
	written := 0
	for ; written < mostSteps; written++ {
		step := nextStep(defaultsAndTarget(classes, target), name, s.claimed)
		if step.isNone() {
			return s.say(target, before.Name, written)
		}
		if err := s.write(ctx, classes[step.class], step); err != nil {
			return err
		}
		if *s.dryRun != dryRunNone {
			return s.say(target, before.Name, 1)
		}
		if step.withdrawn != "" {
			return coded(ExitConflict, fmt.Errorf("IPClass %s was made the default class at the same time: see whether that is right, or run the command again", step.withdrawn))
		}
		s.claimed = s.claimed || step.class == name && step.isDefault
		if classes, err = s.classes(ctx); err != nil {
			return err
		}
		if target = classes[name]; target == nil {
			return notFound(s.client, &v1alpha1.IPClass{ObjectMeta: metaNamed(name)})
		}
	}
	return coded(ExitConflict, fmt.Errorf("the default class is changed by others all the time: run the command again once they have finished"))
}

func (s *switching) classes(ctx context.Context) (map[string]*v1alpha1.IPClass, error) {
	list := &v1alpha1.IPClassList{}
	if err := s.client.List(ctx, list); err != nil {
		return nil, err
	}
	classes := make(map[string]*v1alpha1.IPClass, len(list.Items))
	for i := range list.Items {
		classes[list.Items[i].Name] = &list.Items[i]
	}
	return classes, nil
}

// write does one step, on the class as it was read. What was changed meanwhile is read anew.
func (s *switching) write(ctx context.Context, class *v1alpha1.IPClass, step step) error {
	if *s.dryRun == dryRunClient {
		return nil
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
		return err
	}
	err = s.client.Patch(ctx, class.DeepCopy(), client.RawPatch(types.MergePatchType, patch), s.dryRun)
	if apierrors.IsConflict(err) && class.DeletionTimestamp.IsZero() {
		return nil
	}
	return err
}

func (s *switching) say(target *v1alpha1.IPClass, before string, written int) error {
	done := fmt.Sprintf("is the default class for %s", target.Spec.IPFamily)
	switch {
	case written == 0:
		done += " already"
	case before != "" && before != target.Name:
		done = s.dryRun.done(done + ", in place of " + before)
	default:
		done = s.dryRun.done(done)
	}
	printed, err := outcome(target, done)
	if err != nil {
		return err
	}
	return s.print(s.output, printed)
}
