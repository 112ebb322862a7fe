package cluster

import "io"

// Options says what a cluster is made of. The zero value is etcd, an API server
// and the CRDs of config/crd: enough for tests that call Reconcile themselves.
type Options struct {
	// Dir keeps the credentials, data and logs, and stays when the cluster stops.
	// Empty: a temporary directory that goes with the cluster.
	Dir string
	// Assets is the directory of the control plane's binaries. Empty: that of
	// $KUBEBUILDER_ASSETS, or bin/k8s.
	Assets string
	// Bare leaves the CRDs of config/crd out, for a cluster on which somebody else
	// installs the operator: see StartInstalled.
	Bare bool
	// ControllerManager runs kube-controller-manager, for what happens on
	// deletion: garbage collection and the end of namespaces.
	ControllerManager bool
	// DurableEtcd makes etcd sync every write to the disk. It is slower, and of
	// use only to measure.
	DurableEtcd bool
	// Audit has the API server note what the operator asks of it, for
	// Cluster.Audit.
	Audit bool
	// APIServerFlags are flags of kube-apiserver, by name, in place of what they
	// are otherwise.
	APIServerFlags map[string]string

	// TracesTo is the address of a collector to which etcd and the API server send their
	// traces, all of them. Empty: they trace nothing.
	TracesTo string

	// Managers is how many replicas of the operator run. With more than none,
	// all of config/default is installed, and the cluster is ready when each of
	// them is.
	Managers int
	// Manifests is the kustomization of the operator that is installed. Empty:
	// config/default of this module.
	Manifests string
	// ManagerBinary is what they run. Empty: bin/manager.
	ManagerBinary string
	// ManagerArgs are flags for all of them, beside those that say where to
	// listen.
	ManagerArgs []string
	// OwnLease leaves the leader's lease as short as the operator has it. Otherwise
	// it is calmLease.
	OwnLease bool
	// ManagerEnv is the environment of all of them, beside that of this process.
	ManagerEnv []string
	// Proxied has each of them reach the API server through a proxy of its own,
	// Manager.API.
	Proxied bool
	// Seats is how many requests the API server serves at once, those that only
	// read and those that write each. 0: as many as it does by default.
	Seats int
	// Revive starts a manager again that ends by itself, as a kubelet would. One that
	// is stopped or killed through Manager stays down.
	Revive bool
	// Webhooks are addresses of webhook servers that the caller runs itself,
	// behind the balancer with the managers. With any, config/default is
	// installed even if there are no managers.
	Webhooks []string

	// ClusterAPI runs Cluster API's core manager, with all its CRDs and webhooks,
	// before the managers start: see StartClusterAPI.
	ClusterAPI bool
	// ClusterAPICRDs installs the CRDs of IPAddress, IPAddressClaim, Cluster and Machine
	// alone, before the managers start: see InstallClusterAPICRDs.
	ClusterAPICRDs bool
	// ClusterAPIBinary is the core manager. Empty: bin/capi/manager.
	ClusterAPIBinary string

	// Progress is told what is being waited for and how long it took.
	Progress io.Writer
}
