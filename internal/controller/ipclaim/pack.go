package ipclaim

import (
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"unique"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// packed holds a trimmed claim as the informer stores it. It implements kubeutil.Packed.
type packed struct {
	shared       unique.Handle[sharedFields]
	name, record string
	uid          uuid.UUID
	version      uint64
	block        netip.Prefix
	deletionTime *metav1.Time
}

// sharedFields holds the fields that are equal in many claims.
type sharedFields struct {
	namespace string
	reclaim   v1alpha1.ReclaimPolicy
}

// Pack returns a smaller form of a claim that Trim has made smaller, if that form can state all of
// it; and otherwise its argument.
func Pack(obj any) any {
	claim, ok := obj.(*v1alpha1.IPClaim)
	if !ok || !isTrimmed(claim) {
		return obj
	}
	uid, _ := uuid.Parse(string(claim.UID))
	version, _ := strconv.ParseUint(claim.ResourceVersion, 10, 64)
	block, _ := netip.ParsePrefix(claim.Spec.CIDR)
	p := &packed{
		shared: unique.Make(sharedFields{claim.Namespace, claim.Spec.ReclaimPolicy}),
		name:   claim.Name, record: claim.Spec.AllocationName,
		uid: uid, version: version, block: block, deletionTime: claim.DeletionTimestamp,
	}
	if strings.HasPrefix(p.record, p.name) { // as the names that the operator gives
		p.name = p.record[:len(p.name)]
	}
	if !reflect.DeepEqual(p.claim(), claim) {
		return obj
	}
	return p
}

// Unpack implements kubeutil.Packed.
func (p *packed) Unpack() any { return p.claim() }

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (p *packed) GetObjectMeta() metav1.Object {
	meta := p.meta()
	return &meta
}

func (p *packed) claim() *v1alpha1.IPClaim {
	return &v1alpha1.IPClaim{
		ObjectMeta: p.meta(),
		Spec:       v1alpha1.IPClaimSpec{CIDR: p.block.String(), AllocationName: p.record, ReclaimPolicy: p.shared.Value().reclaim},
		Status:     v1alpha1.IPClaimStatus{Phase: v1alpha1.ClaimBound},
	}
}

func (p *packed) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: p.shared.Value().namespace, Name: p.name, UID: types.UID(p.uid.String()),
		ResourceVersion: strconv.FormatUint(p.version, 10), DeletionTimestamp: p.deletionTime.DeepCopy(),
	}
}

// Trim removes from a claim that is Bound all fields that the controllers do not read from the
// cache, as there can be a hundred thousand claims. Code that writes to a claim that isTrimmed
// reads it live first.
func Trim(claim *v1alpha1.IPClaim) {
	if !isReady(claim) {
		return
	}
	*claim = v1alpha1.IPClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion,
			DeletionTimestamp: claim.DeletionTimestamp,
		},
		Spec: v1alpha1.IPClaimSpec{
			CIDR: claim.Spec.CIDR, AllocationName: claim.Spec.AllocationName, ReclaimPolicy: claim.Spec.ReclaimPolicy,
		},
		Status: v1alpha1.IPClaimStatus{Phase: v1alpha1.ClaimBound},
	}
}

// isTrimmed reports whether Trim has left out most of a claim: the API server stores no
// claim that is Bound without conditions.
func isTrimmed(claim *v1alpha1.IPClaim) bool {
	return claim.Status.Phase == v1alpha1.ClaimBound && len(claim.Status.Conditions) == 0
}

// isReady reports whether the status of a claim is Bound, without a problem.
func isReady(claim *v1alpha1.IPClaim) bool {
	return claim.Status.Phase == v1alpha1.ClaimBound &&
		(isTrimmed(claim) || meta.IsStatusConditionTrue(claim.Status.Conditions, v1alpha1.ConditionReady))
}
