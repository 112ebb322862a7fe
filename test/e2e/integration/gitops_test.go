package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// bundle holds all objects that a team keeps in its repository, in the worst order: every object
// comes before those that it needs.
const bundle = `
apiVersion: ipam.cadastre.dev/v1alpha1
kind: IPClaim
metadata: {name: by-class, namespace: gitops}
spec: {className: gitops-networks}
---
apiVersion: ipam.cadastre.dev/v1alpha1
kind: IPClaim
metadata: {name: by-class-small, namespace: gitops}
spec: {className: gitops-networks, prefixLength: 28}
---
apiVersion: ipam.cadastre.dev/v1alpha1
kind: IPClaim
metadata: {name: by-pool, namespace: gitops}
spec: {poolRef: {name: gitops-zone}, prefixLength: 26}
---
apiVersion: ipam.cadastre.dev/v1alpha1
kind: IPClaim
metadata: {name: by-selector, namespace: gitops}
spec: {poolSelector: {matchLabels: {gitops: zone}}, prefixLength: 26}
---
apiVersion: ipam.cadastre.dev/v1alpha1
kind: IPClaim
metadata: {name: host, namespace: gitops}
spec: {className: gitops-hosts}
---
apiVersion: ipam.cadastre.dev/v1alpha1
kind: IPClaim
metadata: {name: exact, namespace: gitops}
spec: {poolRef: {name: gitops-region}, cidr: 10.5.0.0/16}
---
apiVersion: ipam.cadastre.dev/v1alpha1
kind: IPClaim
metadata: {name: six, namespace: gitops}
spec: {className: gitops-six}
---
apiVersion: ipam.cadastre.dev/v1alpha1
kind: IPPool
metadata: {name: gitops-subnet}
spec:
  parentRef: {name: gitops-zone}
  prefixLength: 24
  network: {prefixLength: 24}
  classNames: [gitops-hosts]
---
apiVersion: ipam.cadastre.dev/v1alpha1
kind: IPPool
metadata: {name: gitops-zone, labels: {gitops: zone}}
spec:
  parentRef: {name: gitops-region}
  prefixLength: 16
  classNames: [gitops-networks]
---
apiVersion: ipam.cadastre.dev/v1alpha1
kind: IPPool
metadata: {name: gitops-region}
spec:
  parentRef: {name: gitops-root}
  prefixLength: 12
---
apiVersion: ipam.cadastre.dev/v1alpha1
kind: IPPool
metadata: {name: gitops-root}
spec:
  cidr: 10.0.0.0/8
  routingDomain: gitops
---
apiVersion: ipam.cadastre.dev/v1alpha1
kind: IPPool
metadata: {name: gitops-six}
spec:
  cidr: 2001:db8:37::/48
  routingDomain: gitops
  classNames: [gitops-six]
---
apiVersion: ipam.cadastre.dev/v1alpha1
kind: IPClass
metadata: {name: gitops-hosts}
spec: {ipFamily: IPv4}
---
apiVersion: ipam.cadastre.dev/v1alpha1
kind: IPClass
metadata: {name: gitops-networks}
spec: {ipFamily: IPv4, defaultPrefixLength: 24, allowedPrefixLengths: {min: 20, max: 28}}
---
apiVersion: ipam.cadastre.dev/v1alpha1
kind: IPClass
metadata: {name: gitops-six}
spec: {ipFamily: IPv6, defaultPrefixLength: 64}
`

// kubectl runs the kubectl of the control plane as the administrator, and returns its output.
func kubectl(ctx context.Context, stdin string, args ...string) string {
	GinkgoHelper()
	program, err := cluster.Binary("kubectl")
	Expect(err).NotTo(HaveOccurred())
	cmd := exec.CommandContext(ctx, program, append([]string{"--kubeconfig", running.Kubeconfig()}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	Expect(cmd.Run()).To(Succeed(), "kubectl %s: %s", strings.Join(args, " "), &stderr)
	return stdout.String()
}

var _ = Describe("gitops", Ordered, func() {
	const team = "gitops"
	documents := strings.Count(bundle, "---") + 1

	claims := func(ctx context.Context) map[string]v1alpha1.IPClaim {
		list := &v1alpha1.IPClaimList{}
		Expect(k8s.List(ctx, list, client.InNamespace(team))).To(Succeed())
		by := map[string]v1alpha1.IPClaim{}
		for i := range list.Items {
			by[list.Items[i].Name] = list.Items[i]
		}
		return by
	}
	pools := func(ctx context.Context) map[string]v1alpha1.IPPool {
		by := map[string]v1alpha1.IPPool{}
		list := &v1alpha1.IPPoolList{}
		Expect(k8s.List(ctx, list)).To(Succeed())
		for i := range list.Items {
			if strings.HasPrefix(list.Items[i].Name, "gitops-") {
				by[list.Items[i].Name] = list.Items[i]
			}
		}
		return by
	}
	// versions returns the block and the generation, which shows whether its spec has ever
	// changed, of each object.
	versions := func(ctx context.Context) map[string]string {
		by := map[string]string{}
		for name, claim := range claims(ctx) {
			by["IPClaim "+name] = fmt.Sprint(claim.Spec.CIDR, " in generation ", claim.Generation)
		}
		for name, pool := range pools(ctx) {
			by["IPPool "+name] = fmt.Sprint(pool.Spec.CIDR, " in generation ", pool.Generation)
		}
		return by
	}
	records := func(ctx context.Context) []string {
		return recordsHeld(ctx, func(holder types.NamespacedName) bool {
			return holder.Namespace == team || holder.Namespace == "" && strings.HasPrefix(holder.Name, "gitops-")
		})
	}
	outcomes := func(output, outcome string) int { return strings.Count(output, " "+outcome+"\n") }

	BeforeAll(func(ctx context.Context) { specs.Namespace(ctx, k8s, team) })

	It("makes all objects ready that are applied in the worst order, in one call", func(ctx context.Context) {
		output := kubectl(ctx, bundle, "apply", "--server-side", "-f", "-")
		Expect(outcomes(output, "serverside-applied")).To(Equal(documents), output)
		Eventually(func() map[string]string {
			phases := map[string]string{}
			for name, claim := range claims(ctx) {
				phases[name] = string(claim.Status.Phase)
			}
			for name, pool := range pools(ctx) {
				phases[name] = string(pool.Status.Phase)
			}
			return phases
		}).Should(Equal(map[string]string{
			"by-class": "Bound", "by-class-small": "Bound", "by-pool": "Bound", "by-selector": "Bound", "host": "Bound", "exact": "Bound", "six": "Bound",
			"gitops-root": "Ready", "gitops-region": "Ready", "gitops-zone": "Ready", "gitops-subnet": "Ready", "gitops-six": "Ready",
		}))
	})

	It("gives every claim a block of the requested size, in the requested pool", func(ctx context.Context) {
		for name, block := range map[string]string{
			"gitops-root": "10.0.0.0/8", "gitops-region": "10.0.0.0/12", "gitops-zone": "10.0.0.0/16", "gitops-subnet": "/24",
		} {
			Expect(pools(ctx)[name].Spec.CIDR).To(HaveSuffix(block), name)
		}
		for name, block := range map[string]string{
			"exact": "10.5.0.0/16", "six": "2001:db8:37::/64", "by-class": "/24", "by-class-small": "/28", "by-pool": "/26", "by-selector": "/26", "host": "/32",
		} {
			Expect(claims(ctx)[name].Spec.CIDR).To(HaveSuffix(block), name)
		}
		Eventually(func() string {
			pool := pools(ctx)["gitops-zone"]
			if pool.Status.Capacity == nil { // it is counted a moment after the pool is Ready
				return "not counted yet"
			}
			return pool.Status.Capacity.Allocated
		}).Should(Equal("656")) // 256 + 256 + 16 + 64 + 64
	})

	It("changes nothing when the same is applied again", func(ctx context.Context) {
		before, recorded := versions(ctx), records(ctx)
		Expect(outcomes(kubectl(ctx, bundle, "apply", "--server-side", "-f", "-"), "serverside-applied")).To(Equal(documents))
		Expect(versions(ctx)).To(Equal(before))
		Expect(records(ctx)).To(Equal(recorded))
		Expect(kubectl(ctx, bundle, "diff", "--server-side", "-f", "-")).To(BeEmpty())
	})

	It("changes nothing when it is applied from the client, and prints no change the second time", func(ctx context.Context) {
		before, recorded := versions(ctx), records(ctx)
		kubectl(ctx, bundle, "apply", "-f", "-")
		second := kubectl(ctx, bundle, "apply", "-f", "-")
		Expect(outcomes(second, "unchanged")).To(Equal(documents), second)
		Expect(versions(ctx)).To(Equal(before))
		Expect(records(ctx)).To(Equal(recorded))
		Expect(kubectl(ctx, bundle, "diff", "-f", "-")).To(BeEmpty())
	})

	It("applies new objects from the client, in the worst order, and prints no change the second time", func(ctx context.Context) {
		other := strings.NewReplacer("gitops", "gitops-other", "2001:db8:37::", "2001:db8:38::", "{gitops: zone}", "{gitops-other: zone}").Replace(bundle)
		specs.Namespace(ctx, k8s, "gitops-other")
		Expect(outcomes(kubectl(ctx, other, "apply", "-f", "-"), "created")).To(Equal(documents))
		Eventually(func() int {
			list := &v1alpha1.IPClaimList{}
			Expect(k8s.List(ctx, list, client.InNamespace("gitops-other"))).To(Succeed())
			bound := 0
			for i := range list.Items {
				if list.Items[i].Status.Phase == v1alpha1.ClaimBound {
					bound++
				}
			}
			return bound
		}).Should(Equal(7))
		second := kubectl(ctx, other, "apply", "-f", "-")
		Expect(outcomes(second, "unchanged")).To(Equal(documents), second)
	})

	It("prints the block of a claim as it creates it, and of a dry run the one that it would give", func(ctx context.Context) {
		const claim = `{"apiVersion": "ipam.cadastre.dev/v1alpha1", "kind": "IPClaim", "metadata": {"name": "printed", "namespace": "gitops"},
			"spec": {"poolRef": {"name": "gitops-root"}, "prefixLength": 12}}`
		const block = "jsonpath={.spec.cidr}"
		Expect(kubectl(ctx, claim, "create", "--dry-run=server", "-f", "-", "-o", block)).To(Equal("10.16.0.0/12"))
		Expect(kubectl(ctx, claim, "create", "-f", "-", "-o", block)).To(Equal("10.16.0.0/12"))
		Expect(kubectl(ctx, "", "get", "ipclaim", "printed", "-n", team, "-o", block)).To(Equal("10.16.0.0/12"))
	})
})

// This topic sends each object again as it was created: kubectl replace, and Argo CD with
// Replace=true. The fields that the operator filled in are not in the manifest.
var _ = Describe("replace", Ordered, func() {
	BeforeAll(func(ctx context.Context) { specs.Namespace(ctx, k8s, "replaced") })

	DescribeTable("leaves the object as it is", func(ctx context.Context, manifest, kind, name string) {
		kubectl(ctx, manifest, "create", "-f", "-")
		stored := func() map[string]any {
			obj := map[string]any{}
			Expect(json.Unmarshal([]byte(kubectl(ctx, "", "get", kind, name, "-n", "replaced", "-o", "json")), &obj)).To(Succeed())
			return obj
		}
		before := stored()
		kubectl(ctx, manifest, "replace", "-f", "-")
		after := stored()
		Expect(after["spec"]).To(Equal(before["spec"]))
		Expect(after["metadata"]).To(HaveKeyWithValue("generation", before["metadata"].(map[string]any)["generation"]))
	},
		Entry("IPClass", `{"apiVersion": "ipam.cadastre.dev/v1alpha1", "kind": "IPClass", "metadata": {"name": "replaced"}, "spec": {"ipFamily": "IPv6"}}`, "ipclass", "replaced"),
		Entry("IPPool, a root", `{"apiVersion": "ipam.cadastre.dev/v1alpha1", "kind": "IPPool", "metadata": {"name": "replaced"}, "spec": {"cidr": "2001:db8:39::/48"}}`, "ippool", "replaced"),
		Entry("IPPool, a child", `{"apiVersion": "ipam.cadastre.dev/v1alpha1", "kind": "IPPool", "metadata": {"name": "replaced-child"},
			"spec": {"parentRef": {"name": "replaced"}, "prefixLength": 56}}`, "ippool", "replaced-child"),
		Entry("LocalIPPool, a root", `{"apiVersion": "ipam.cadastre.dev/v1alpha1", "kind": "LocalIPPool", "metadata": {"name": "own", "namespace": "replaced"},
			"spec": {"cidr": "10.0.0.0/24"}}`, "localippool", "own"),
		Entry("LocalIPPool, a child", `{"apiVersion": "ipam.cadastre.dev/v1alpha1", "kind": "LocalIPPool", "metadata": {"name": "child", "namespace": "replaced"},
			"spec": {"parentRef": {"kind": "LocalIPPool", "name": "own"}, "prefixLength": 28}}`, "localippool", "child"),
		Entry("IPClaim", `{"apiVersion": "ipam.cadastre.dev/v1alpha1", "kind": "IPClaim", "metadata": {"name": "claim", "namespace": "replaced"},
			"spec": {"poolRef": {"kind": "LocalIPPool", "name": "own"}, "prefixLength": 32}}`, "ipclaim", "claim"),
	)
})
