// Package conformance checks an IPAM provider of Cluster API against the contract for IPAM providers
// (Document), clause by clause, in a cluster in which the provider runs. It works with any provider:
// it needs the rights of an administrator, and a template of a pool. Its test binary runs alone:
//
//	go test -c -o ipam-conformance github.com/cadastre-dev/cadastre/clusterapi/conformance
//	./ipam-conformance -test.v -kubeconfig ~/.kube/config -pool pool.yaml
//
// where pool.yaml is such as
//
//	apiVersion: ipam.cluster.x-k8s.io/v1alpha2
//	kind: InClusterIPPool
//	metadata:
//	  name: {{ .Name }}
//	spec:
//	  addresses: [10.99.{{ .Index }}.16/28]
//	  prefix: 24
//	  gateway: 10.99.{{ .Index }}.1
//
// Each clause is a subtest, such as TestConformance/C19_claim_owns_IPAddress. It has a namespace and
// a pool of its own, which it removes. It fails if the provider does not follow the clause, and is
// skipped, with the reason, if the clause does not apply. No check sleeps or polls: a trial watches,
// and a wait ends with the Deadline.
//
// That a provider does not do something is judged when it has served two claims that were created
// later. A provider that handles many claims at a time can do it afterwards, unseen.
//
// The checks B01 and later are beyond the contract. The part of the contract that is for
// infrastructure providers is not checked.
package conformance
