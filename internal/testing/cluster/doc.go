// Package cluster runs a Kubernetes control plane and Cadastre's managers as
// processes on loopback, for the suites, `make up` and `make demo`.
//
// The parts are real: etcd, kube-apiserver and kube-controller-manager, built by `make
// controlplane`, and bin/manager, or bin/test-manager if an --orphan-grace is set. The managers run
// as they would in a cluster: under their own service account, with the RBAC, flow control and
// webhook configuration of config/default. Only two things differ. Pods are not run, so the
// managers are processes started from here in place of the Deployment; and the Service of the
// webhooks is of type ExternalName and leads to a balancer on loopback, in front of all managers.
//
//	c, err := cluster.Start(ctx, cluster.Options{Managers: 2})
//	...
//	defer c.Stop()
//	k8s, err := cluster.NewClient(c.Config())
//	...
//	err = c.Managers[0].Pause()      // wakes up on Resume, and does not notice
//	err = c.Managers[1].Kill()       // as kill -9
//	err = c.Managers[1].Restart(ctx) // returns when it is ready
//	err = c.APIServer.Restart(ctx)
//
// With Options{ClusterAPI: true} Cluster API's core manager (bin/capi/manager, which `make
// capi` builds) runs beside it, and its CRDs are served in all their versions, converted and
// validated by its webhooks; v1beta2 is stored. With Options{ClusterAPICRDs: true} only the
// CRDs are installed, in v1beta2. Both can come later, while the operator runs:
// c.InstallClusterAPICRDs, c.StartClusterAPI.
//
// No process outlives the one that called Start, however that ends: see leash.
package cluster
