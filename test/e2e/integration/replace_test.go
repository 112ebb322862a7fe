package integration

import (
	"context"
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// This topic sends each object again as it was created: kubectl replace, and Argo CD with
// Replace=true. The fields that the operator filled in are not in the manifest.
var _ = Describe("replace", Ordered, func() {
	BeforeAll(func(ctx context.Context) { namespace(ctx, "replaced") })

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
