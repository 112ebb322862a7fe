package addresses

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// Ensure ensures that each address of each device has its claim, and returns the addresses in the
// order of the devices and of their pools. If one or more addresses are missing, it returns none, and
// a sentence for each. Then the caller reports the sentences, and returns without an error and
// without RequeueAfter: Watch triggers the next pass.
//
// Ensure creates missing claims, and adds labels, annotations and the owner to its existing ones. It
// deletes nothing. A claim that is being deleted is waited for, and then created again: its address
// can be another one.
//
// It returns an error that is ErrForeignClaim, ErrClaimChanged or ErrInvalidAddress and names the
// device and the object, or the error of a call. The caller returns it, so that the queue's back-off
// causes the next pass: no event does when an object of another owner is gone. It also returns an
// error if the owner is being deleted or has no finalizer.
//
// Contract: "Infrastructure Provider", steps 1 to 3.
func (m *Machine) Ensure(ctx context.Context) (addresses []Address, waiting []string, err error) {
	if !m.Owner.GetDeletionTimestamp().IsZero() {
		return nil, nil, fmt.Errorf("%s is being deleted: release its addresses", m.Owner.GetName())
	}
	if len(m.Owner.GetFinalizers()) == 0 {
		return nil, nil, fmt.Errorf("%s has no finalizer: add one before it gets addresses", m.Owner.GetName())
	}
	if err := m.validate(); err != nil {
		return nil, nil, err
	}
	var errs []error
	for _, r := range m.requests() {
		address, missing, err := m.ensureAddress(ctx, r)
		switch {
		case err != nil:
			errs = append(errs, err)
		case missing != "":
			waiting = append(waiting, missing)
		default:
			addresses = append(addresses, address)
		}
	}
	if len(errs) > 0 {
		return nil, nil, errors.Join(errs...)
	}
	if len(waiting) > 0 {
		return nil, waiting, nil
	}
	return addresses, nil, nil
}

// ensureAddress returns the address for a request, or the reason why it is missing.
func (m *Machine) ensureAddress(ctx context.Context, r request) (_ Address, missing string, _ error) {
	claim, err := m.ensureClaim(ctx, r)
	if err != nil {
		return Address{}, "", err
	}
	if !claim.DeletionTimestamp.IsZero() {
		return Address{}, fmt.Sprintf("IPAddressClaim %s is being deleted", claim.Name), nil
	}
	name := claim.Status.AddressRef.Name
	if name == "" {
		return Address{}, fmt.Sprintf("IPAddressClaim %s has no address yet: %s", claim.Name, readyMessage(claim)), nil
	}
	ipAddress := &ipamv1.IPAddress{}
	err = m.Client.Get(ctx, client.ObjectKey{Namespace: claim.Namespace, Name: name}, ipAddress)
	if apierrors.IsNotFound(err) { // the cache does not show it yet, or it is made again
		return Address{}, fmt.Sprintf("IPAddress %s of IPAddressClaim %s does not exist", name, claim.Name), nil
	}
	if err != nil {
		return Address{}, "", fmt.Errorf("reading IPAddress %s: %w", name, err)
	}
	if !ipAddress.DeletionTimestamp.IsZero() {
		return Address{}, fmt.Sprintf("IPAddress %s is being deleted", name), nil
	}
	// The cache of IPAddresses can be behind the cache of claims.
	if owner := metav1.GetControllerOfNoCopy(ipAddress); owner != nil && owner.UID != claim.UID {
		return Address{}, fmt.Sprintf("IPAddress %s belongs to an earlier %s %s", name, owner.Kind, owner.Name), nil
	}
	address, err := parse(claim, ipAddress)
	if err != nil {
		return Address{}, "", fmt.Errorf("device %s: IPAddress %s %w: %w", r.device.Name, name, ErrInvalidAddress, err)
	}
	address.Device = r.device.Name
	return address, "", nil
}

// ensureClaim returns the claim for a request, with all its metadata.
func (m *Machine) ensureClaim(ctx context.Context, r request) (*ipamv1.IPAddressClaim, error) {
	key := client.ObjectKey{Namespace: m.Owner.GetNamespace(), Name: r.claim}
	claim := &ipamv1.IPAddressClaim{}
	err := m.Client.Get(ctx, key, claim)
	if apierrors.IsNotFound(err) {
		claim, err = m.createClaim(ctx, r, key)
	}
	if err != nil {
		return nil, fmt.Errorf("claiming an address for device %s: %w", r.device.Name, err)
	}
	if err := m.check(r, claim); err != nil || !claim.DeletionTimestamp.IsZero() {
		return claim, err
	}
	before := claim.DeepCopy()
	if err := m.setMetadata(r, claim); err != nil {
		return nil, err
	}
	if equality.Semantic.DeepEqual(before, claim) {
		return claim, nil
	}
	if err := m.Client.Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, fmt.Errorf("adding metadata to IPAddressClaim %s: %w", claim.Name, err)
	}
	return claim, nil
}

// createClaim creates the claim for a request, or reads it if the cache did not show it.
func (m *Machine) createClaim(ctx context.Context, r request, key client.ObjectKey) (*ipamv1.IPAddressClaim, error) {
	claim := &ipamv1.IPAddressClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Spec:       ipamv1.IPAddressClaimSpec{ClusterName: m.ClusterName, PoolRef: r.pool},
	}
	if err := m.setMetadata(r, claim); err != nil {
		return nil, err
	}
	err := m.Client.Create(ctx, claim)
	if apierrors.IsAlreadyExists(err) {
		claim = &ipamv1.IPAddressClaim{}
		err = m.Live.Get(ctx, key, claim)
	}
	return claim, err
}

// setMetadata sets the labels, annotations and the owner of a claim. Both ways to name the Cluster
// are used: spec.clusterName, which a claim of an earlier version can lack, and the label.
func (m *Machine) setMetadata(r request, claim *ipamv1.IPAddressClaim) error {
	for key, value := range r.device.Labels {
		metav1.SetMetaDataLabel(&claim.ObjectMeta, key, value)
	}
	for key, value := range r.device.Annotations {
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, key, value)
	}
	metav1.SetMetaDataLabel(&claim.ObjectMeta, clusterv1.ClusterNameLabel, m.ClusterName)
	if m.Instance != "" {
		metav1.SetMetaDataLabel(&claim.ObjectMeta, InstanceLabel, m.instanceLabel())
	}
	return controllerutil.SetControllerReference(m.Owner, claim, m.Client.Scheme())
}

// readyMessage returns the message of the condition Ready, also if the IPAM provider uses v1beta1.
func readyMessage(claim *ipamv1.IPAddressClaim) string {
	if ready := meta.FindStatusCondition(claim.Status.Conditions, ipamv1.IPAddressClaimReadyCondition); ready != nil && ready.Message != "" {
		return ready.Message
	}
	for _, condition := range claim.GetV1Beta1Conditions() {
		if condition.Type == ipamv1.IPAddressClaimReadyCondition && condition.Message != "" {
			return condition.Message
		}
	}
	return "its IPAM provider has not served it"
}

// parse returns the address of an IPAddress, with an error if it is not that of the claim.
func parse(claim *ipamv1.IPAddressClaim, ipAddress *ipamv1.IPAddress) (Address, error) {
	spec := ipAddress.Spec
	if spec.ClaimRef.Name != claim.Name {
		return Address{}, fmt.Errorf("it is for the IPAddressClaim %s, not %s", spec.ClaimRef.Name, claim.Name)
	}
	if spec.PoolRef != claim.Spec.PoolRef {
		return Address{}, fmt.Errorf("it is from the %s %s, not the %s %s", spec.PoolRef.Kind, spec.PoolRef.Name, claim.Spec.PoolRef.Kind, claim.Spec.PoolRef.Name)
	}
	addr, err := netip.ParseAddr(spec.Address)
	if err != nil {
		return Address{}, err
	}
	if spec.Prefix == nil {
		return Address{}, errors.New("it has no prefix")
	}
	address := Address{Pool: spec.PoolRef, Claim: claim.Name, Prefix: netip.PrefixFrom(addr, int(*spec.Prefix))}
	if !address.Prefix.IsValid() {
		return Address{}, fmt.Errorf("%s cannot have the prefix length %d", addr, *spec.Prefix)
	}
	if spec.Gateway != "" {
		address.Gateway, err = netip.ParseAddr(spec.Gateway)
	}
	return address, err
}
