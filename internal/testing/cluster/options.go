package cluster

import (
	"io"
	"time"
)

// Options holds the settings of a cluster. The zero value is etcd, an API server and the CRDs
// of config/crd: enough for tests that call Reconcile themselves.
type Options struct {
	// Dir keeps the credentials, data and logs, and stays when the cluster stops.
	// Empty: a temporary directory that goes with the cluster.
	Dir string
	// Assets is the directory of the control plane's binaries. Empty: that of
	// $KUBEBUILDER_ASSETS, or bin/k8s.
	Assets string
	// Bare leaves the CRDs of config/crd out, for a cluster on which another program installs
	// the operator: see StartInstalled.
	Bare bool
	// ControllerManager runs kube-controller-manager, for the effects of a deletion: garbage
	// collection and the end of namespaces.
	ControllerManager bool
	// DurableEtcd makes etcd sync every write to the disk. It is slower, and useful only to
	// measure.
	DurableEtcd bool
	// Audit makes the API server log the requests of the operator, for Cluster.Audit.
	Audit bool
	// APIServerFlags are flags of kube-apiserver, by name, in place of their other values.
	APIServerFlags map[string]string

	// TracesTo is the address of a collector to which etcd and the API server send their
	// traces, all of them. Empty: they trace nothing.
	TracesTo string

	// Managers is the number of replicas of the operator. With more than none, all of
	// config/default is installed, and the cluster is ready when each of them is.
	Managers int
	// Manifests is the kustomization of the operator that is installed. Empty:
	// config/default of this module.
	Manifests string
	// ManagerBinary is the program of the managers. Empty: bin/manager, or bin/test-manager
	// with an OrphanGrace.
	ManagerBinary string
	// OrphanGrace is the --orphan-grace of all managers, for tests that wait for its end. It
	// can be shorter than bin/manager accepts. 0: the default of the manager.
	OrphanGrace time.Duration
	// ManagerArgs are flags for all managers, besides those for the addresses to listen on.
	ManagerArgs []string
	// OwnLease leaves the leader's lease as short as the operator has it. Otherwise the lease
	// is calmLease.
	OwnLease bool
	// ManagerEnv is the environment of all managers, besides that of this process.
	ManagerEnv []string
	// Proxied makes each manager reach the API server through its own proxy, Manager.API.
	Proxied bool
	// Seats is the number of requests that the API server serves at once, of those that only
	// read and of those that write each. 0: the default of the API server.
	Seats int
	// Revive starts a manager again that ends by itself, as a kubelet would. A manager that is
	// stopped or killed through Manager stays down.
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

	// Progress receives a message about each wait, and the time that it took.
	Progress io.Writer
}
