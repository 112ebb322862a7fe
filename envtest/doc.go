// Package envtest runs Cadastre in a test suite that uses the package of the same name of
// controller-runtime, so that a controller is tested against real blocks and addresses:
//
//	cfg, err := env.Start() // sigs.k8s.io/controller-runtime/pkg/envtest
//	...
//	ipam, err := envtest.Start(ctx, cfg, envtest.Options{})
//	...
//	defer ipam.Stop()
//
// Start installs Cadastre's CRDs, admission policies and webhooks, and, where they are
// missing, the CRDs of Cluster API that Cadastre deals with. Then it runs the operator in
// the process of the test. When it returns, the API server calls the webhooks and enforces
// the policies: the next IPClaim has its block in the response to its create call.
//
// What runs is the operator of the releases with its own webhook server, certificate and
// webhook paths. It listens on loopback alone, on a free port: suites may run side by side,
// and the webhooks of the caller, with env.WebhookInstallOptions, are left as they are. The
// operator writes as the service account that the policies exempt, which it impersonates,
// but with the rights of an administrator. So a suite shows nothing about the rights of
// Cadastre, and the configuration that is given to Start must be one of an administrator,
// as that of env.Start is.
//
// One operator runs for each control plane. One process can run several, each for a control
// plane of its own.
package envtest
