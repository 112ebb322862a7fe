package explain

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

// Knowledge holds the objects that the caller can read to explain a claim.
type Knowledge struct {
	Register  *register.Register
	Namespace string
	// addressClaims are the IPAddressClaims that the caller can list.
	addressClaims []ipamv1.IPAddressClaim
	// operator simulates the operator with the listed objects; nil if the caller cannot list all
	// objects that the operator watches.
	operator *allocator.Simulator
}

// Read reads the objects that the register does not have. It leaves out objects that the caller
// cannot read.
func (k *Knowledge) Read(ctx context.Context, c client.Client) error {
	list := &ipamv1.IPAddressClaimList{}
	err := c.List(ctx, list)
	if apierrors.IsForbidden(err) {
		err = c.List(ctx, list, client.InNamespace(k.Namespace))
	}
	if err == nil { // Cluster API is optional
		k.addressClaims = list.Items
	}
	if slices.ContainsFunc([]string{"ippools", "localippools", "ipallocations"}, k.Register.Lacks) {
		return ctx.Err()
	}
	classes, namespaces := &v1alpha1.IPClassList{}, &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NamespaceList"}}
	for _, list := range []client.ObjectList{classes, namespaces} {
		if err := c.List(ctx, list); apierrors.IsForbidden(err) {
			return nil
		} else if err != nil {
			return fmt.Errorf("listing classes and namespaces: %w", err)
		}
	}
	return k.load(classes.Items, namespaces.Items)
}

// load simulates the operator with the listed objects.
func (k *Knowledge) load(classes []v1alpha1.IPClass, namespaces []metav1.PartialObjectMetadata) error {
	listed := allocator.Snapshot{Waiting: k.Register.Waiting, Waiters: k.addressWaiters()}
	for _, pool := range k.Register.Pools {
		if pool.IsKnown() {
			listed.Objects = append(listed.Objects, pool.Object)
		}
	}
	for i := range classes {
		listed.Objects = append(listed.Objects, &classes[i])
	}
	for i := range namespaces {
		listed.Objects = append(listed.Objects, &namespaces[i])
	}
	for record := range k.Register.Records() {
		listed.Records = append(listed.Records, record.Record)
	}
	var err error
	k.operator, err = allocator.NewSimulator(listed)
	return err
}

func (k *Knowledge) hasClass(name string) bool {
	_, has := k.operator.Catalogue.Class(name)
	return has
}

// Close ends the simulation.
func (k *Knowledge) Close() {
	if k.operator != nil {
		k.operator.Close()
	}
}

// addressWaiters returns the IPAddressClaims that wait for room.
func (k *Knowledge) addressWaiters() []queue.Waiter {
	var all []queue.Waiter
	for i := range k.addressClaims {
		claim := &k.addressClaims[i]
		ready := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ConditionReady)
		if claim.Status.AddressRef.Name != "" || ready == nil || ready.Reason != v1alpha1.ReasonPoolExhausted || !convert.IsOurs(claim.Spec.PoolRef.APIGroup, claim.Spec.PoolRef.Kind) {
			continue
		}
		if request, err := addressRequest(claim); err == nil {
			all = append(all, queue.Waiter{
				Since: claim.CreationTimestamp.Time, Holder: convert.HolderOfAddressClaim(request.Claim), Request: request, Reason: queue.ReasonNoRoom,
			})
		}
	}
	return all
}
