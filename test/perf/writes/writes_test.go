// Package writes counts the requests of one claim to the API server, by its own metrics: on a
// control plane whose CPU is the limit, throughput goes as one over the number of requests.
package writes

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

const (
	clients = 4
	each    = 25
	claims  = clients * each
)

// TestClaimCostsExpectedWrites fails when a claim, or its release, costs another request.
func TestClaimCostsExpectedWrites(t *testing.T) {
	w := start(t)
	w.Created(build.Class("networks").Length(28).Obj())
	w.Pools(
		build.Pool("platform").CIDR("10.0.0.0/16").Classes("networks").Obj(),
		build.Pool("v6").CIDR("2001:db8::/32").Obj(),
		build.Pool("hosts").CIDR("172.16.0.0/20").Network(20, "172.16.0.1").Obj(),
	)

	perClaim := map[string]int{
		"POST ipallocations": claims, // the record, before the answer
		"POST ipclaims":      claims, // the claim itself, with its status
	}
	for name, claim := range map[string]*build.ClaimBuilder{
		"by pool":        build.Claim("", "").Pool("platform").Length(28),
		"by class":       build.Claim("", "").Class("networks"),
		"IPv6":           build.Claim("", "").Pool("v6").Length(64),
		"host addresses": build.Claim("", "").Pool("hosts"),
	} {
		namespace := strings.ReplaceAll(strings.ToLower(name), " ", "-")
		w.Namespace(namespace)
		w.costs(t, "a claim "+name, perClaim, func() { w.create(namespace, claim.Obj()) })
	}
	w.costs(t, "a claim's release", map[string]int{
		"DELETE ipallocations": claims,
		"PATCH ipallocations":  claims, // the finalizer, which keeps the block until the holder is gone
		"DELETE ipclaims":      claims,
		"GET ipclaims":         2 * claims, // at most: that the claim is gone, before the deletion and before the finalizer goes
	}, func() { w.release("by-pool") })
}

// TestAddressClaimCostsExpectedWrites does the same for Cluster API's claims. The finalizer is set at
// admission, and costs nothing; the event about the address does.
func TestAddressClaimCostsExpectedWrites(t *testing.T) {
	w := start(t)
	w.Expect(w.InstallClusterAPICRDs(t.Context())).To(Succeed())
	w.Pools(build.Pool("hosts").CIDR("172.16.0.0/20").Network(20, "172.16.0.1").Obj())
	w.Namespace("machines")
	w.Eventually(func() string { // the operator finds the kinds when they come
		w.createAddresses("machines", "first", 1)
		return w.address("machines", "first-0")
	}).ShouldNot(BeEmpty())
	w.costs(t, "an IPAddressClaim", map[string]int{
		"POST ipaddressclaims":         claims, // the claim itself
		"POST ipallocations":           claims, // the record
		"POST ipaddresses":             claims,
		"PATCH ipaddressclaims/status": claims,
	}, func() {
		w.createAddresses("machines", "c", claims)
		w.awaitAddresses("machines", claims+1)
	})
	w.costs(t, "an IPAddressClaim's release", map[string]int{
		"DELETE ipaddressclaims": claims,
		"PATCH ipaddressclaims":  claims, // our finalizer
		"DELETE ipaddresses":     claims,
		"PATCH ipaddresses":      claims, // our finalizer
		"DELETE ipallocations":   claims,
		"PATCH ipallocations":    claims,     // the finalizer
		"GET ipaddressclaims":    2 * claims, // at most, as for a claim
		"GET ipaddresses":        2 * claims,
	}, func() { w.releaseAddresses("machines", claims) })
}

// TestWaitingClaimCostsExpectedWrites fails when a claim that waits costs another request, when a change of
// its pool that concerns none of them costs any, or when there are as many events as claims.
func TestWaitingClaimCostsExpectedWrites(t *testing.T) {
	w := start(t)
	full := build.Pool("full").CIDR("10.0.0.0/28").Classes("full").Obj()
	w.Pools(full, build.Pool("roomy").CIDR("10.1.0.0/16").Obj())
	w.Created(build.Class("full").Length(28).Obj())
	w.Namespace("waiting")
	for i := range 5 { // with fewer the operator asks whether their claims are about to go
		w.Created(build.Claim("waiting", fmt.Sprint("held-", i)).Pool("full").Length(32).Obj())
	}
	waits := func() {
		for i := range claims {
			w.Created(build.Claim("waiting", fmt.Sprint("w-", i)).Class("full").Obj())
		}
	}
	w.mostEvents = claims / 2
	w.costs(t, "a claim that waits", map[string]int{"POST ipclaims": claims}, waits)
	w.mostEvents = 0
	w.costs(t, "a change of their pool", map[string]int{"PATCH ippools": 1}, func() {
		w.Expect(w.Patch(w.Context(), full, build.Merge(`{"spec":{"allowRetain":true}}`))).To(Succeed())
	})
	w.Namespace("served")
	w.costs(t, "a claim of another pool, while they wait", map[string]int{"POST ipallocations": claims, "POST ipclaims": claims}, func() {
		w.create("served", build.Claim("", "").Pool("roomy").Length(28).Obj())
	})
}

// mostReads bounds the reads of the operator for so many claims. It reads if one of its caches is
// behind, which depends on how busy the machine is.
const mostReads = claims / 10

// costs calls a function and expects it to have taken exactly these writes, these reads at most,
// and few others.
func (w *world) costs(t *testing.T, what string, want map[string]int, do func()) {
	w.settled()
	before := w.requests()
	clear(w.own)
	do()
	w.settled()
	writes, reads := map[string]int{}, map[string]int{}
	for request, count := range w.requests() {
		count -= before[request] + w.own[request]
		switch verb, _, _ := strings.Cut(request, " "); {
		case count <= 0:
		case verb == "GET" || verb == "LIST":
			reads[request] = max(0, count-want[request])
		default:
			writes[request] = count
		}
	}
	if events := writes["POST events"]; 0 < events && events <= w.mostEvents {
		delete(writes, "POST events")
	}
	maps.DeleteFunc(want, func(request string, _ int) bool { return strings.HasPrefix(request, "GET ") })
	if !maps.Equal(writes, want) {
		t.Errorf("%d times %s took the writes %v, want %v", claims, what, writes, want)
	}
	if sum(reads) > mostReads {
		t.Errorf("%d times %s took the reads %v, want %d at most", claims, what, reads, mostReads)
	}
}

func sum(counts map[string]int) int {
	total := 0
	for _, count := range counts {
		total += count
	}
	return total
}

// world holds a cluster with one replica of the operator.
type world struct {
	Gomega
	*suite.World
	// mostEvents bounds the number of events, if they are bounded by time.
	mostEvents int
	// own holds this test's own lists since costs were last counted.
	own map[string]int
}

func start(t *testing.T) *world {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(time.Minute)
	return &world{Gomega: g, World: suite.Start(t, cluster.Options{Managers: 1}), own: map[string]int{}}
}

// create creates claims with several clients, and waits until all are Bound.
func (w *world) create(namespace string, claim *v1alpha1.IPClaim) {
	var creating sync.WaitGroup
	for n := range clients {
		creating.Go(func() {
			for i := range each {
				one := claim.DeepCopy()
				one.Namespace, one.Name = namespace, fmt.Sprintf("c-%d-%d", n, i)
				w.Expect(w.Create(w.Context(), one)).To(Succeed())
			}
		})
	}
	creating.Wait()
	w.Eventually(func() int {
		list, bound := &v1alpha1.IPClaimList{}, 0
		w.list(list, namespace)
		for _, c := range list.Items {
			if c.Status.Phase == v1alpha1.ClaimBound {
				bound++
			}
		}
		return bound
	}).Should(Equal(claims))
}

// release deletes the claims of a namespace and waits until nothing is held.
func (w *world) release(namespace string) {
	list := &v1alpha1.IPClaimList{}
	w.list(list, namespace)
	for i := range list.Items {
		w.Expect(w.Delete(w.Context(), &list.Items[i])).To(Succeed())
	}
	w.Eventually(func() int { return w.records(namespace) }).Should(BeZero())
}

// records returns the number of records in a namespace.
func (w *world) records(namespace string) int {
	list := &v1alpha1.IPAllocationList{}
	w.list(list, namespace)
	return len(list.Items)
}

func (w *world) list(list client.ObjectList, namespace string) {
	w.Expect(w.List(w.Context(), list, client.InNamespace(namespace))).To(Succeed())
	switch list.(type) {
	case *v1alpha1.IPClaimList:
		w.own["LIST ipclaims"]++
	case *ipamv1.IPAddressClaimList:
		w.own["LIST ipaddressclaims"]++
	default:
		w.own["LIST ipallocations"]++
	}
}

// settled waits until the counts of pools and classes, which are written once a
// second while anything changes, are written, and no request is counted any more.
func (w *world) settled() {
	last := ""
	w.Eventually(func() bool {
		now := fmt.Sprint(w.requestCounts())
		same := now == last
		last = now
		return same
	}).WithPolling(1500 * time.Millisecond).Should(BeTrue())
}

// requests returns all that claims may have caused, by verb and resource, but for those that are
// written at their own pace, for any number of claims.
func (w *world) requests() map[string]int {
	counts := w.requestCounts()
	maps.DeleteFunc(counts, func(request string, _ int) bool {
		return strings.HasSuffix(request, " ippools/status") || strings.HasSuffix(request, " ipclasses/status")
	})
	return counts
}

// requestCounts returns the requests that the API server has counted of our kinds and of those by which
// operators communicate: events and reviews.
func (w *world) requestCounts() map[string]int {
	counts := map[string]int{}
	for _, metric := range w.APIServerMetrics()["apiserver_request_total"].GetMetric() {
		labels := suite.Labels(metric)
		switch labels["group"] {
		case v1alpha1.GroupVersion.Group, ipamv1.GroupVersion.Group, "events.k8s.io", "authorization.k8s.io", "authentication.k8s.io":
		default:
			if labels["resource"] != "events" {
				continue
			}
		}
		if labels["verb"] == "WATCH" { // counted when they end
			continue
		}
		request := labels["verb"] + " " + strings.TrimSuffix(labels["resource"]+"/"+labels["subresource"], "/")
		counts[request] += int(metric.GetCounter().GetValue())
	}
	return counts
}

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
	w.Eventually(func() int { return w.records(namespace) }).Should(Equal(1)) // that of the first
}
