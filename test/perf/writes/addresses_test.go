package writes

import (
	"fmt"

	. "github.com/onsi/gomega"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// createAddresses creates so many of Cluster API's claims, if they do not exist.
func (w *world) createAddresses(namespace, prefix string, count int) {
	for i := range count {
		claim := build.AddressClaim(namespace, fmt.Sprintf("%s-%d", prefix, i)).Pool("hosts").Obj()
		w.Expect(client.IgnoreAlreadyExists(w.Create(w.Context(), claim))).To(Succeed())
	}
}

// address returns the name of the claim's IPAddress, empty until it has one.
func (w *world) address(namespace, name string) string {
	claim := &ipamv1.IPAddressClaim{}
	w.Expect(w.Get(w.Context(), client.ObjectKey{Namespace: namespace, Name: name}, claim)).To(Succeed())
	return claim.Status.AddressRef.Name
}

// awaitAddresses waits until so many claims have their addresses.
func (w *world) awaitAddresses(namespace string, count int) {
	w.Eventually(func() int {
		list, served := &ipamv1.IPAddressClaimList{}, 0
		w.list(list, namespace)
		for i := range list.Items {
			if list.Items[i].Status.AddressRef.Name != "" {
				served++
			}
		}
		return served
	}).Should(Equal(count))
}

// releaseAddresses deletes so many claims, and waits until nothing is held for them.
func (w *world) releaseAddresses(namespace string, count int) {
	for i := range count {
		claim := build.AddressClaim(namespace, fmt.Sprintf("c-%d", i)).Obj()
		w.Expect(w.Delete(w.Context(), claim)).To(Succeed())
	}
	w.Eventually(func() int {
		records := &v1alpha1.IPAllocationList{}
		w.list(records, namespace)
		return len(records.Items)
	}).Should(Equal(1)) // that of the first
}
