package operator

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/yaml"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// removal holds the policy that refuses all new objects while the operator is removed, and its
// binding.
//
//go:embed removal.yaml
var removal string

const (
	// removalRole is the ClusterRole with the right to install the policy. The operator has it for
	// its removal only.
	removalRole = "cadastre-removal"
	// removalMessage is the answer of the policy.
	removalMessage = "Cadastre is being removed"
	// enforcedWithin bounds the wait until the API server enforces the policy. The API server
	// learns of the policy by a watch.
	enforcedWithin = 30 * time.Second
	enforcedEvery  = 100 * time.Millisecond
	// permittedWithin bounds the wait until the right to install the policy is in force. It is bound
	// to the operator just before.
	permittedWithin = 5 * time.Second
)

// isOperator returns an error if the client is not the operator: only the operator can remove the
// finalizers of IPAllocations.
func isOperator(ctx context.Context, c client.Client, o Options) error {
	review := &authenticationv1.SelfSubjectReview{}
	if err := c.Create(ctx, review); err != nil {
		return fmt.Errorf("asking the API server who this is: %w", err)
	}
	if user := review.Status.UserInfo.Username; user != o.User() {
		return fmt.Errorf("finalizers are removed by %s alone, and this is %s: run remove-finalizers in a pod of the operator", o.User(), user)
	}
	return nil
}

// refuseNew installs the policy of the removal and its binding. It applies them, because a right
// to create by POST cannot be limited to one name.
func refuseNew(ctx context.Context, c client.Client, o Options) error {
	for document := range strings.SplitSeq(removal, "\n---\n") {
		obj := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(document), &obj.Object); err != nil {
			return fmt.Errorf("reading the policy of the removal: %w", err)
		}
		var last error
		err := wait.PollUntilContextTimeout(ctx, enforcedEvery, permittedWithin, true, func(ctx context.Context) (bool, error) {
			err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(obj), client.FieldOwner(removalRole), client.ForceOwnership)
			if ctx.Err() == nil || last == nil { // otherwise the answer before is more useful
				last = err
			}
			return !apierrors.IsForbidden(last), nil
		})
		switch {
		case apierrors.IsForbidden(last):
			return fmt.Errorf("installing the policy of the removal: %w: bind the ClusterRole that allows it, and run this again: kubectl create clusterrolebinding %s --clusterrole=%[2]s --serviceaccount=%s:%s",
				last, removalRole, o.Namespace, o.ServiceAccount)
		case last != nil || err != nil:
			return fmt.Errorf("installing the policy of the removal: %w", errors.Join(last, err))
		}
	}
	return nil
}

// awaitRefusal blocks until the API server refuses new objects. It probes with a create that is
// never stored.
func awaitRefusal(ctx context.Context, c client.Client, namespace string) error {
	name := ipam.Name{Namespace: namespace, Name: "removal-probe"}
	probe := ipam.Record{
		Name: name, Block: netip.MustParsePrefix("192.0.2.0/32"), Pool: ipam.PoolNamed(name.Name),
		Holder: convert.HolderOfClaim(name), Purpose: ipam.PurposeClaim, Reclaim: ipam.ReclaimDelete, State: ipam.StateBound,
	}
	var last error
	err := wait.PollUntilContextTimeout(ctx, enforcedEvery, enforcedWithin, true, func(ctx context.Context) (bool, error) {
		last = c.Create(ctx, convert.Allocation(probe), client.DryRunAll)
		return meta.IsNoMatchError(last) || last != nil && strings.Contains(last.Error(), removalMessage), nil
	})
	if err != nil {
		return errors.Join(fmt.Errorf("waiting until nothing new is admitted: %w", err), last)
	}
	return nil
}

// protection represents the finalizer that the operator puts on all objects of a kind.
type protection struct {
	kind      schema.GroupVersionKind
	finalizer string
	// pause marks the object as paused, so that an operator that still runs leaves it alone.
	pause bool
}

// protections returns the finalizers in the order in which they are removed: IPAddresses come
// after their claims, because a running operator repairs them until it has seen the pause.
func protections() []protection {
	return []protection{
		{kind: v1alpha1.GroupVersion.WithKind("IPAllocation"), finalizer: v1alpha1.FinalizerHeld},
		{kind: ipamv1.GroupVersion.WithKind("IPAddressClaim"), finalizer: v1alpha1.FinalizerRelease, pause: true},
		{kind: v1alpha1.GroupVersion.WithKind(string(v1alpha1.PoolKindIPPool)), finalizer: v1alpha1.FinalizerPool},
		{kind: v1alpha1.GroupVersion.WithKind(string(v1alpha1.PoolKindLocalIPPool)), finalizer: v1alpha1.FinalizerPool},
		{kind: ipamv1.GroupVersion.WithKind("IPAddress"), finalizer: v1alpha1.FinalizerProtect},
		{kind: v1alpha1.GroupVersion.WithKind("IPClaim"), finalizer: v1alpha1.FinalizerClusterNetwork},
	}
}

// The removal repeats its passes over all objects, one each passEvery, until cleanPasses in a row
// have found no finalizer. Until the last pass, every create that this API server or another one
// admitted just before the policy was in force has been stored.
const (
	cleanPasses = 3
	passEvery   = time.Second
)

// RemoveFinalizers prepares the removal of the operator. It installs the policy
// cadastre-removal, which refuses all new objects and stays until it is deleted. Then it removes
// the operator's finalizers from all objects, so that no deletion hangs when the operator is
// gone. It returns when no finalizer is left. Blocks stay recorded until the objects are deleted.
// RemoveFinalizers pauses IPAddressClaims by Cluster API's annotation, and they stay paused. It
// skips kinds that are not served. The caller must be the operator, and can repeat the call.
func RemoveFinalizers(ctx context.Context, cfg *rest.Config, o Options, report io.Writer) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	return removeFinalizers(ctx, c, o, report)
}

func removeFinalizers(ctx context.Context, c client.Client, o Options, report io.Writer) error {
	if err := isOperator(ctx, c, o); err != nil {
		return err
	}
	if err := refuseNew(ctx, c, o); err != nil {
		return err
	}
	if err := awaitRefusal(ctx, c, o.Namespace); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(report, "nothing new is handed out, by the ValidatingAdmissionPolicy cadastre-removal"); err != nil {
		return err
	}
	clean := 0
	err := wait.PollUntilContextCancel(ctx, passEvery, true, func(ctx context.Context) (bool, error) {
		removed, err := removeAll(ctx, c, report)
		if clean++; removed > 0 {
			clean = 0
		}
		return clean == cleanPasses, err
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(report, "no object has a finalizer of Cadastre any more")
	return err
}

// removeAll makes one pass over all kinds, and returns the number of objects that had a finalizer.
func removeAll(ctx context.Context, c client.Client, report io.Writer) (int, error) {
	sum := 0
	for _, p := range protections() {
		count, err := p.remove(ctx, c)
		if meta.IsNoMatchError(err) || err == nil && count == 0 {
			continue
		}
		if err != nil {
			return 0, err
		}
		sum += count
		if _, err := fmt.Fprintf(report, "removed %s from %d of kind %s\n", p.finalizer, count, p.kind.Kind); err != nil {
			return 0, err
		}
	}
	return sum, nil
}

// remove removes the finalizer from all objects of the kind, and returns the number of objects
// that had it. An object that changes at that moment keeps the finalizer until the next pass: a
// running operator whose write is refused tries again and again.
func (p protection) remove(ctx context.Context, c client.Client) (count int, err error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(p.kind.GroupVersion().WithKind(p.kind.Kind + "List"))
	if err := c.List(ctx, list); err != nil {
		return 0, fmt.Errorf("listing objects with the finalizer %s: %w", p.finalizer, err)
	}
	for i := range list.Items {
		obj := &list.Items[i]
		if !controllerutil.ContainsFinalizer(obj, p.finalizer) {
			continue
		}
		count++
		if err := p.removeFrom(ctx, c, obj); kubeutil.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return 0, fmt.Errorf("removing the finalizer of %s %s: %w", p.kind.Kind, client.ObjectKeyFromObject(obj), err)
		}
	}
	return count, nil
}

// removeFrom removes the finalizer from an object as it was listed. It returns a conflict if the
// object has changed since.
func (p protection) removeFrom(ctx context.Context, c client.Client, obj *metav1.PartialObjectMetadata) error {
	before := obj.DeepCopy()
	controllerutil.RemoveFinalizer(obj, p.finalizer)
	if p.pause {
		metav1.SetMetaDataAnnotation(&obj.ObjectMeta, clusterv1.PausedAnnotation, "")
	}
	return c.Patch(ctx, obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}
