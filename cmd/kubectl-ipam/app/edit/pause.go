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
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
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
	bindPausing(e, cmd, (*pausing).pause)
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
	bindPausing(e, cmd, (*pausing).resume)
	return cmd
}

// pausing represents one run of pause or resume.
type pausing struct{ *editing }

// bindPausing makes the command do this with the pool that its argument names.
func bindPausing(e *command.Env, cmd *cobra.Command, do func(*pausing, context.Context, v1alpha1.Pool) error) {
	cmd.Args = cobra.ExactArgs(1)
	cmd.ValidArgsFunction = e.FirstPool()
	p := &pausing{bindEditing(e, cmd)}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := p.connect(); err != nil {
			return err
		}
		ref, err := command.FindPool(cmd.Context(), p.client, p.namespace, args[0])
		if err != nil {
			return err
		}
		pool := newPool(p.namespace, ref)
		if err := command.Get(cmd.Context(), p.client, pool); err != nil {
			return err
		}
		return do(p, cmd.Context(), pool)
	}
}

// newPool returns a pool with the name to which a reference in a namespace refers.
func newPool(namespace string, ref v1alpha1.PoolReference) v1alpha1.Pool {
	pool, key := convert.NewPool(ipam.PoolKind(ref.Kind)), convert.PoolKey(namespace, ref)
	pool.SetNamespace(key.Namespace)
	pool.SetName(key.Name)
	return pool
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
	if p.dryRun == command.DryRunClient {
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
	return p.client.Patch(ctx, pool, client.RawPatch(types.MergePatchType, patch), p.patchOptions())
}
