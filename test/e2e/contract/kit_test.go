package contract

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/clusterapi/conformance"
)

// newKit returns a kit that checks pools of a kind.
func newKit(kind, spec string) *conformance.Kit {
	GinkgoHelper()
	checker, err := conformance.NewClient(running.Config())
	Expect(err).NotTo(HaveOccurred())
	pool := fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: \"{{.Name}}\"}\nspec: %s\n", v1alpha1.GroupVersion, kind, spec)
	return conformance.New(conformance.Target{Client: checker, Pool: pool, Addresses: 16, Deadline: time.Minute})
}

// The kit has a clause for each rule of the contract. The address of a claim for a class belongs to a
// pool of it, so that only the clauses about the kind itself are for classes.
var _ = Describe("The conformance kit", func() {
	for _, kind := range []struct {
		name, spec string
		clauses    []conformance.Clause
	}{
		{"IPPool", "{cidr: 10.201.{{.Index}}.0/28}", conformance.Clauses()},
		{"LocalIPPool", "{cidr: 10.202.{{.Index}}.0/28}", conformance.Clauses()},
		{"IPClass", "{ipFamily: IPv4}", conformance.Clauses()[:5]},
	} {
		Context(kind.name, Ordered, func() {
			var kit *conformance.Kit

			BeforeAll(func() { kit = newKit(kind.name, kind.spec) })

			for _, c := range kind.clauses {
				It(c.ID+": "+c.Requires, func(ctx context.Context) {
					result := kit.Check(ctx, c)
					Expect(result.Outcome).To(Equal(conformance.Passed), result.Reason)
					Expect(result.Notes).To(BeEmpty())
				})
			}
		})
	}
})
