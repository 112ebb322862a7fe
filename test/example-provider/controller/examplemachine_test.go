package controller

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"example.com/example-provider/api/v1alpha1"
	ipamapi "github.com/cadastre-dev/cadastre/api/v1alpha1"
)

func TestExampleMachines(t *testing.T) {
	k8s := startSuite(t)
	for name, story := range map[string]func(*world){
		"a machine has an address of its pool":                               addressOfPool,
		"a machine has an address of a pool of its class":                    addressOfClass,
		"a machine has an address of each family":                            addressesOfBothFamilies,
		"machines that are made at once have different addresses":            addressesOfTheirOwn,
		"in a full pool a machine waits, and continues once another is gone": fullPool,
		"nothing is done while the Cluster is paused":                        pausedCluster,
		"a machine takes no address of a claim that is not its own":          foreignClaim,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			story(newWorld(t, k8s))
		})
	}
}

func addressOfPool(w *world) {
	pool := w.pool("subnet", ipamapi.PoolSpec{
		CIDR:    "10.1.0.0/24",
		Network: &ipamapi.PoolNetwork{PrefixLength: 24, Gateway: "10.1.0.1"},
	})
	machine := w.machine("web", pool)
	w.Expect(w.addressOf(machine)).To(Equal("10.1.0.2"), "the first address that is not the gateway's")
	w.Expect(machine.Status.Initialization.Provisioned).To(HaveValue(BeTrue()))
	w.Expect(machine.Spec.ProviderID).To(Equal("example://" + w.namespace + "/web"))

	address := &ipamv1.IPAddress{}
	w.Expect(w.Get(w.t.Context(), claimOf(machine), address)).To(Succeed())
	w.Expect(address.Spec.Prefix).To(HaveValue(BeEquivalentTo(24)))
	w.Expect(address.Spec.Gateway).To(Equal("10.1.0.1"))
}

func addressOfClass(w *world) {
	w.create(&ipamapi.IPClass{ObjectMeta: metav1.ObjectMeta{Name: "machines"}, Spec: ipamapi.IPClassSpec{IPFamily: ipamapi.IPv6}})
	w.pool("behind-the-class", ipamapi.PoolSpec{CIDR: "2001:db8:1::/64", ClassNames: []string{"machines"}})
	machine := w.machine("web", ipamv1.IPPoolReference{APIGroup: ipamapi.GroupVersion.Group, Kind: "IPClass", Name: "machines"})
	address := netip.MustParseAddr(w.addressOf(machine))
	w.Expect(netip.MustParsePrefix("2001:db8:1::/64").Contains(address)).To(BeTrue(), "%s", address)
}

func addressesOfBothFamilies(w *world) {
	machine := w.machine("web",
		w.pool("family-4", ipamapi.PoolSpec{CIDR: "10.6.0.0/24"}),
		w.pool("family-6", ipamapi.PoolSpec{CIDR: "2001:db8:6::/64"}))
	w.Expect(w.addressOf(machine)).To(Equal("10.6.0.0"))
	w.Expect(machine.Status.Addresses).To(HaveExactElements(HaveField("Address", "10.6.0.0"), HaveField("Address", "2001:db8:6::")))
	w.remove(machine)
	claims := &ipamv1.IPAddressClaimList{}
	w.Expect(w.List(w.t.Context(), claims, client.InNamespace(w.namespace))).To(Succeed())
	w.Expect(claims.Items).To(BeEmpty(), "the machine is gone after its claims")
}

func addressesOfTheirOwn(w *world) {
	const count = 14
	pool := w.pool("rack", ipamapi.PoolSpec{CIDR: "10.2.0.0/28"})
	var machines []*v1alpha1.ExampleMachine
	for i := range count {
		machines = append(machines, w.machine(fmt.Sprint("node-", i), pool))
	}
	given := map[string]string{}
	for _, machine := range machines {
		address := w.addressOf(machine)
		w.Expect(given).NotTo(HaveKey(address), "%s has it, too", given[address])
		given[address] = machine.Name
	}
}

func fullPool(w *world) {
	pool := w.pool("one-address", ipamapi.PoolSpec{CIDR: "10.3.0.0/32"})
	first := w.machine("first", pool)
	w.Expect(w.addressOf(first)).To(Equal("10.3.0.0"))
	second := w.machine("second", pool)
	w.waiting(second, v1alpha1.ReasonWaitingForAddress, "one-address")
	w.remove(first)
	w.Expect(w.addressOf(second)).To(Equal("10.3.0.0"), "the address is reused")

	w.remove(second)
	records := &ipamapi.IPAllocationList{}
	w.Eventually(func(g Gomega) {
		g.Expect(w.List(w.t.Context(), records, client.InNamespace(w.namespace))).To(Succeed())
		g.Expect(records.Items).To(BeEmpty(), "nothing is in use any more")
	}).Should(Succeed())
}

func pausedCluster(w *world) {
	pool := w.pool("paused", ipamapi.PoolSpec{CIDR: "10.4.0.0/24"})
	w.setPaused(true)
	machine := w.machine("web", pool)
	w.paused(machine)
	claim := &ipamv1.IPAddressClaim{}
	w.Consistently(func() error { return w.Get(w.t.Context(), claimOf(machine), claim) }, time.Second).
		Should(MatchError(ContainSubstring("not found")), "nothing is claimed")
	w.setPaused(false)
	w.addressOf(machine)

	w.setPaused(true)
	w.paused(machine)
	w.Expect(w.Delete(w.t.Context(), machine)).To(Succeed())
	w.Consistently(func(g Gomega) {
		g.Expect(w.Get(w.t.Context(), claimOf(machine), claim)).To(Succeed())
		g.Expect(claim.DeletionTimestamp).To(BeNil(), "the address is not given back")
	}, time.Second).Should(Succeed())
	w.setPaused(false)
	w.awaitGone(machine)
}

func foreignClaim(w *world) {
	pool := w.pool("foreign", ipamapi.PoolSpec{CIDR: "10.5.0.0/24"})
	claim := &ipamv1.IPAddressClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "web-eth0-0"},
		Spec:       ipamv1.IPAddressClaimSpec{PoolRef: pool},
	}
	w.create(claim)
	machine := w.machine("web", pool)
	w.waiting(machine, v1alpha1.ReasonClaimNotOwned, "web-eth0-0")
	w.Expect(machine.Status.Addresses).To(BeEmpty())
	w.remove(machine)
	w.Expect(w.Get(w.t.Context(), client.ObjectKeyFromObject(claim), claim)).To(Succeed(), "it goes without the claim")
	w.Expect(claim.DeletionTimestamp).To(BeNil())
}

// claimOf returns the name of the first claim of the machine.
func claimOf(machine *v1alpha1.ExampleMachine) client.ObjectKey {
	return client.ObjectKey{Namespace: machine.Namespace, Name: machine.Name + "-eth0-0"}
}

// addressOf waits until the machine has its addresses, and returns the first.
func (w *world) addressOf(machine *v1alpha1.ExampleMachine) string {
	w.t.Helper()
	w.Eventually(func(g Gomega) {
		g.Expect(w.Get(w.t.Context(), client.ObjectKeyFromObject(machine), machine)).To(Succeed())
		ready := conditions.Get(machine, clusterv1.ReadyCondition)
		g.Expect(ready).To(HaveValue(HaveField("Reason", v1alpha1.ReasonRunning)))
		g.Expect(machine.Status.Addresses).NotTo(BeEmpty())
	}).Should(Succeed())
	return machine.Status.Addresses[0].Address
}

// paused waits until the machine reports that it is paused.
func (w *world) paused(machine *v1alpha1.ExampleMachine) {
	w.t.Helper()
	w.Eventually(func(g Gomega) {
		g.Expect(w.Get(w.t.Context(), client.ObjectKeyFromObject(machine), machine)).To(Succeed())
		g.Expect(conditions.IsTrue(machine, clusterv1.PausedCondition)).To(BeTrue())
	}).Should(Succeed())
}

// waiting waits until the machine reports that it waits for this reason, with a message about name.
func (w *world) waiting(machine *v1alpha1.ExampleMachine, reason, name string) {
	w.t.Helper()
	w.Eventually(func(g Gomega) {
		g.Expect(w.Get(w.t.Context(), client.ObjectKeyFromObject(machine), machine)).To(Succeed())
		ready := conditions.Get(machine, clusterv1.ReadyCondition)
		g.Expect(ready).To(HaveValue(And(HaveField("Reason", reason), HaveField("Message", ContainSubstring(name)))))
	}).Should(Succeed())
}
