package edit

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
)

// NewPause returns the command pause.
func NewPause(e *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pause POOL",
		Short: "Pause allocation from a pool until it is resumed",
		Long: `Pause allocation from a pool until it is resumed. Held blocks stay held, and releases go on.
Claims that only this pool could serve wait. Its child pools continue to hand out their own
blocks: pause each that is to stop.`,
		Example: `  kubectl ipam pause nodes`,
	}
	p := bindPausing(e, cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return p.run(cmd.Context(), args[0], p.pause) }
	return cmd
}

// NewResume returns the command resume.
func NewResume(e *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "resume POOL",
		Short:   "Resume allocation from a paused pool",
		Long:    `Resume allocation from a paused pool. The claims that wait for it are served, oldest first.`,
		Example: `  kubectl ipam resume nodes`,
	}
	p := bindPausing(e, cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return p.run(cmd.Context(), args[0], p.resume) }
	return cmd
}

// pausing represents one run of pause or resume.
type pausing struct {
	*command.Env
	dryRun *command.DryRun
	output *command.Output

	client client.Client
}

func bindPausing(e *command.Env, cmd *cobra.Command) *pausing {
	cmd.Args = cobra.ExactArgs(1)
	cmd.ValidArgsFunction = e.First(&v1alpha1.IPPoolList{}, &v1alpha1.LocalIPPoolList{})
	return &pausing{Env: e, dryRun: command.BindDryRun(cmd), output: command.BindOutput(cmd)}
}

func (p *pausing) run(ctx context.Context, argument string, do func(context.Context, v1alpha1.Pool) error) error {
	if err := p.dryRun.Check(); err != nil {
		return err
	}
	k8s, err := p.Env.Client()
	if err != nil {
		return err
	}
	p.client = k8s
	pool, err := pool(ctx, p.Env, k8s, argument)
	if err != nil {
		return err
	}
	return do(ctx, pool)
}

// pool reads the pool that an argument names.
func pool(ctx context.Context, e *command.Env, c client.Client, argument string) (v1alpha1.Pool, error) {
	namespace, err := e.Namespace()
	if err != nil {
		return nil, err
	}
	ref, err := command.PoolNamed(ctx, c, namespace, argument)
	if err != nil {
		return nil, err
	}
	pool := v1alpha1.NewPool(ref.Kind)
	pool.SetName(ref.Name)
	if ref.Kind == v1alpha1.PoolKindLocalIPPool {
		pool.SetNamespace(namespace)
	}
	return pool, command.Get(ctx, c, pool)
}

func (p *pausing) pause(ctx context.Context, pool v1alpha1.Pool) error {
	if _, paused := pool.GetAnnotations()[v1alpha1.AnnotationPaused]; paused {
		return p.say(pool, "is paused already")
	}
	if err := p.annotate(ctx, pool, new("true")); err != nil {
		return err
	}
	return p.say(pool, p.dryRun.Done("paused")+": it hands out nothing; held blocks stay held, and its child pools continue")
}

func (p *pausing) resume(ctx context.Context, pool v1alpha1.Pool) error {
	_, paused := pool.GetAnnotations()[v1alpha1.AnnotationPaused]
	_, byClusterAPI := pool.GetAnnotations()[v1alpha1.AnnotationClusterAPIPaused]
	if paused {
		if err := p.annotate(ctx, pool, nil); err != nil {
			return err
		}
	}
	switch {
	case byClusterAPI:
		return command.Coded(command.ExitConflict, fmt.Errorf("%s %s stays paused by the annotation %s, which clusterctl sets while it moves a cluster: if nothing moves it, remove that: kubectl annotate %[1]s %[2]s%s %[3]s-",
			pool.PoolKind(), pool.GetName(), v1alpha1.AnnotationClusterAPIPaused, command.InNamespace(pool)))
	case paused:
		return p.say(pool, p.dryRun.Done("resumed"))
	default:
		return p.say(pool, "is not paused")
	}
}

// annotate sets the annotation, or removes it if the value is nil. It changes exactly this pool,
// and no later one of its name.
func (p *pausing) annotate(ctx context.Context, pool v1alpha1.Pool, value *string) error {
	if *p.dryRun == command.DryRunClient {
		annotations := pool.GetAnnotations()
		delete(annotations, v1alpha1.AnnotationPaused)
		if value != nil {
			annotations = labels.Merge(annotations, labels.Set{v1alpha1.AnnotationPaused: *value})
		}
		pool.SetAnnotations(annotations)
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pool.GetUID(), "annotations": map[string]*string{v1alpha1.AnnotationPaused: value},
	}})
	if err != nil {
		return err
	}
	return p.client.Patch(ctx, pool, client.RawPatch(types.MergePatchType, patch), p.dryRun)
}

func (p *pausing) say(pool v1alpha1.Pool, what string) error {
	printed, err := command.Outcome(pool, what)
	if err != nil {
		return err
	}
	return p.Print(p.output, printed)
}
