// Package envtest runs Cadastre in a test suite that uses the package of the same name of
// controller-runtime, so that a controller is tested against real blocks and addresses:
//
//	cfg, err := env.Start() // sigs.k8s.io/controller-runtime/pkg/envtest
//	...
//	ipam, err := envtest.Start(ctx, cfg, envtest.Options{})
//	...
//	defer ipam.Stop()
//
// Start installs Cadastre's CRDs, admission policies and webhooks, and, if they are
// missing, the CRDs of Cluster API that Cadastre deals with. Then it runs the operator in
// the process of the test. When it returns, the API server calls the webhooks and enforces
// the policies: the next IPClaim has its block in the response to its create call.
//
// The suite runs the operator of the releases with its own webhook server, certificate and
// webhook paths. The operator listens on loopback only, on a free port: suites can run side by
// side, and the webhooks of the caller, with env.WebhookInstallOptions, stay as they are. The
// operator impersonates the service account that the policies exempt, but writes with the
// rights of an administrator. So a suite shows nothing about the rights of Cadastre, and
// Start needs the configuration of an administrator, such as the one that env.Start returns.
//
// One operator runs for each control plane. One process can run several operators, each for a
// different control plane.
package envtest
