package cluster

import (
	"os"
	"strconv"
	"strings"
)

// controllers returns the controllers that run, by the names that kube-controller-manager has
// for them: those that delete, count and authorize, and none that needs nodes or a cloud.
func controllers() []string {
	return []string{
		"clusterrole-aggregation-controller",
		"garbage-collector-controller",
		"namespace-controller",
		"resourcequota-controller",
		"root-ca-certificate-publisher-controller",
		"serviceaccount-controller",
		"serviceaccount-token-controller",
		"validatingadmissionpolicy-status-controller",
	}
}

// newControllerManager prepares kube-controller-manager. Each of its controllers acts under its
// own service account, as in a real cluster: policies distinguish them by that.
func newControllerManager(bin assets, files *runDir, port int, kubeconfig string, authority []byte) (*Process, error) {
	rootCA := files.in("auth", "apiserver-ca.crt")
	if err := os.WriteFile(rootCA, authority, 0o600); err != nil {
		return nil, err
	}
	address := loopback(port)
	return &Process{
		Name: "kube-controller-manager",
		path: bin.path("kube-controller-manager"),
		Args: []string{
			"--kubeconfig=" + kubeconfig,
			"--authentication-kubeconfig=" + kubeconfig,
			"--authorization-kubeconfig=" + kubeconfig,
			"--use-service-account-credentials",
			"--service-account-private-key-file=" + files.in("apiserver", "sa-signer.key"),
			"--root-ca-file=" + rootCA,
			"--controllers=" + strings.Join(controllers(), ","),
			"--concurrent-gc-syncs=20",
			"--concurrent-namespace-syncs=10",
			"--authentication-skip-lookup", // it would look for a configuration that only aggregation needs
			"--leader-elect=false",
			"--bind-address=127.0.0.1",
			"--secure-port=" + strconv.Itoa(port),
			"--cert-dir=" + files.in("cache"),
			"--profiling=false",
		},
		ready: answersOK("https://" + address + "/healthz"),
		files: files,
	}, nil
}
