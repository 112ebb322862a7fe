package docs

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// kinds has the kinds that pages create, as KIND.VERSION.GROUP, in the order of deletion: the holder of
// a block goes before its pool.
var kinds = []string{
	"IPClaim.v1alpha1.ipam.cadastre.dev", "IPAddressClaim.v1beta2.ipam.cluster.x-k8s.io", "IPAddress.v1beta2.ipam.cluster.x-k8s.io",
	"Machine.v1beta2.cluster.x-k8s.io", "Cluster.v1beta2.cluster.x-k8s.io",
	"LocalIPPool.v1alpha1.ipam.cadastre.dev", "IPPool.v1alpha1.ipam.cadastre.dev", "IPClass.v1alpha1.ipam.cadastre.dev",
	"ResourceQuota.v1.", "ConfigMap.v1.", "ServiceAccount.v1.",
	"RoleBinding.v1.rbac.authorization.k8s.io", "Role.v1.rbac.authorization.k8s.io",
	"ClusterRoleBinding.v1.rbac.authorization.k8s.io", "ClusterRole.v1.rbac.authorization.k8s.io",
	"ValidatingAdmissionPolicyBinding.v1.admissionregistration.k8s.io", "ValidatingAdmissionPolicy.v1.admissionregistration.k8s.io",
	"MutatingAdmissionPolicyBinding.v1.admissionregistration.k8s.io", "MutatingAdmissionPolicy.v1.admissionregistration.k8s.io",
	"Namespace.v1.", "CustomResourceDefinition.v1.apiextensions.k8s.io",
}

// listed returns all objects of a kind.
func (w *world) listed(kind string) []metav1.PartialObjectMetadata {
	w.Helper()
	gvk, _ := schema.ParseKindArg(kind)
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(*gvk)
	err := w.List(w.Context(), list)
	if meta.IsNoMatchError(err) {
		return nil
	}
	suite.Must(w, err)
	for i := range list.Items {
		list.Items[i].SetGroupVersionKind(*gvk)
	}
	return list.Items
}

// objects returns the UIDs of all objects of these kinds.
func (w *world) objects() map[types.UID]bool {
	w.Helper()
	found := map[types.UID]bool{}
	for _, kind := range kinds {
		for _, object := range w.listed(kind) {
			found[object.GetUID()] = true
		}
	}
	return found
}

// patiently asks until the answer is yes, or patience is at its end.
func (w *world) patiently(yes func() bool) bool {
	return wait.PollUntilContextTimeout(w.Context(), 250*time.Millisecond, w.Patience, true,
		func(context.Context) (bool, error) { return yes(), nil }) == nil
}

// reset deletes the objects that a page has created, so that the next one begins without them.
func (w *world) reset(before map[types.UID]bool) {
	w.Helper()
	var left []string
	if !w.patiently(func() bool {
		left = append(w.delete(before), w.release()...)
		return len(left) == 0
	}) {
		w.Errorf("the page leaves objects that cannot be deleted:\n%s", strings.Join(left, "\n"))
	}
}

// delete deletes the new objects, and returns those that still exist. A pool in use is refused, and
// deleted in a later round.
func (w *world) delete(before map[types.UID]bool) []string {
	w.Helper()
	var left []string
	for _, kind := range kinds {
		for _, object := range w.listed(kind) {
			byKubernetes := object.Name == "kube-root-ca.crt" || object.Kind == "ServiceAccount" && object.Name == "default"
			if before[object.UID] || byKubernetes {
				continue
			}
			why := ""
			if err := w.Delete(w.Context(), &object); err != nil && !apierrors.IsNotFound(err) {
				why = ": " + err.Error()
			}
			left = append(left, fmt.Sprintf("%s %s/%s%s", object.Kind, object.Namespace, object.Name, why))
		}
	}
	return left
}

// release releases the blocks that are retained, and returns the held ones.
func (w *world) release() []string {
	w.Helper()
	all := &v1alpha1.IPAllocationList{}
	suite.Must(w, w.List(w.Context(), all))
	var held []string
	for _, record := range all.Items {
		held = append(held, fmt.Sprintf("IPAllocation %s (%s)", client.ObjectKeyFromObject(&record), record.Spec.State))
		if record.Spec.State == v1alpha1.AllocationRetained {
			w.Deleted(&record)
		}
	}
	return held
}
