package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// historyQuota is the largest size of etcd's file, in bytes: the largest that etcd recommends.
// The API server compacts history every 5 minutes, but none while it is killed more often than
// that, and past the quota etcd takes no more writes.
const historyQuota = "8589934592"

// startTimeout is for etcd and kube-apiserver, which the tests do not test: to start takes them
// seconds of CPU time, which are minutes beside other work. If one ends, that is noticed at
// once.
const startTimeout = 5 * time.Minute

// newControlPlane prepares etcd and kube-apiserver, run by envtest. Both are started through a
// launcher that notes their process, and keep their ports, data and certificates when they are
// started again.
func newControlPlane(bin assets, files *runDir, free *ports, options Options) (*envtest.ControlPlane, error) {
	freePorts, err := free.several(3)
	if err != nil {
		return nil, err
	}
	etcd := &envtest.Etcd{
		DataDir:      files.pathTo("etcd"),
		URL:          &url.URL{Scheme: "http", Host: loopback(freePorts[0])},
		StartTimeout: startTimeout,
		StopTimeout:  stopGrace,
	}
	if etcd.Path, err = writeLauncher(files, bin, "etcd"); err != nil {
		return nil, err
	}
	etcd.Configure().
		Set("listen-peer-urls", "http://"+loopback(freePorts[1])).
		Set("log-level", "warn").
		Set("quota-backend-bytes", historyQuota)

	api := &envtest.APIServer{
		CertDir:      files.pathTo("apiserver"),
		StartTimeout: startTimeout,
		StopTimeout:  stopGrace,
	}
	if api.Path, err = writeLauncher(files, bin, "kube-apiserver"); err != nil {
		return nil, err
	}
	api.SecureServing.Address, api.SecureServing.Port = "127.0.0.1", strconv.Itoa(freePorts[2])
	api.Configure().
		Set("profiling", "false").
		Set("shutdown-send-retry-after", "true") // else open watches hold up its end for a minute
	if options.Seats > 0 {
		api.Configure().
			Set("max-requests-inflight", strconv.Itoa(options.Seats)).
			Set("max-mutating-requests-inflight", strconv.Itoa(options.Seats))
	}
	for name, value := range options.APIServerFlags {
		api.Configure().Set(name, value)
	}
	return &envtest.ControlPlane{Etcd: etcd, APIServer: api, KubectlPath: bin.path("kubectl")}, nil
}

// writeLauncher writes a script that runs one of the binaries, with its output in its log, and
// notes its process. Envtest also calls it to ask for flags. CONTROL_PLANE_GOGC in the
// environment is the GOGC of the binary, and of no other process: a control plane that shares a
// machine with many suites may take memory rather than time. CONTROL_PLANE_GOMAXPROCS is likewise
// its GOMAXPROCS.
func writeLauncher(files *runDir, bin assets, name string) (string, error) {
	script := fmt.Sprintf(`#!/bin/sh
case "$1" in
--help) exec '%[1]s' "$@" ;;
esac
export GOGC="${CONTROL_PLANE_GOGC:-${GOGC:-}}"
export GOMAXPROCS="${CONTROL_PLANE_GOMAXPROCS:-${GOMAXPROCS:-}}"
echo $$ >'%[2]s'
exec '%[1]s' "$@" >>'%[3]s' 2>&1
`, bin.path(name), files.pidPath(name), files.logPath(name))
	path := files.pathTo("launch", name)
	return path, os.WriteFile(path, []byte(script), 0o700)
}

// awaitDefaultNamespace waits for the default namespace, which the API server makes by itself
// shortly after it is ready.
func awaitDefaultNamespace(ctx context.Context, config *rest.Config) error {
	reader, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	last := error(nil)
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, readyTimeout, true,
		func(ctx context.Context) (bool, error) {
			last = reader.Get(ctx, client.ObjectKey{Name: corev1.NamespaceDefault}, &corev1.Namespace{})
			return last == nil, nil
		})
	if err != nil {
		return fmt.Errorf("waiting for the default namespace: %w (%w)", err, last)
	}
	return nil
}

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
	rootCA := files.pathTo("auth", "apiserver-ca.crt")
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
			"--service-account-private-key-file=" + files.pathTo("apiserver", "sa-signer.key"),
			"--root-ca-file=" + rootCA,
			"--controllers=" + strings.Join(controllers(), ","),
			"--concurrent-gc-syncs=20",
			"--concurrent-namespace-syncs=10",
			"--authentication-skip-lookup", // it would look for a configuration that only aggregation needs
			"--leader-elect=false",
			"--bind-address=127.0.0.1",
			"--secure-port=" + strconv.Itoa(port),
			"--cert-dir=" + files.pathTo("cache"),
			"--profiling=false",
		},
		ready: answersOK("https://" + address + "/healthz"),
		files: files,
	}, nil
}

// askEtcd sends a request to etcd's JSON gateway, and returns the body of the answer.
func (c *Cluster) askEtcd(ctx context.Context, method, body string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.EtcdURL()+"/v3/"+method, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	return answer.Body, nil
}

// SnapshotEtcd writes the present content of etcd into a file, by its maintenance API, as
// `etcdctl snapshot save` does.
func (c *Cluster) SnapshotEtcd(ctx context.Context, path string) error {
	answer, err := c.askEtcd(ctx, "maintenance/snapshot", "{}")
	if err != nil {
		return err
	}
	defer func() { _ = answer.Close() }()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(copySnapshot(file, answer), file.Close())
}

// EtcdRevision returns the revision of the present content of etcd.
func (c *Cluster) EtcdRevision(ctx context.Context) (int64, error) {
	answer, err := c.askEtcd(ctx, "kv/range", `{"key":"AA==","count_only":true}`)
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Close() }()
	var found struct {
		Header struct {
			Revision int64 `json:"revision,string"`
		} `json:"header"`
	}
	err = json.NewDecoder(answer).Decode(&found)
	return found.Header.Revision, err
}

// copySnapshot writes the parts in which a snapshot is sent, one after the other. The last is
// the checksum of the others, which a restore verifies.
func copySnapshot(dst io.Writer, src io.Reader) error {
	decoder := json.NewDecoder(src)
	for {
		var part struct {
			Result struct {
				Blob []byte `json:"blob"`
			} `json:"result"`
			Error json.RawMessage `json:"error"`
		}
		err := decoder.Decode(&part)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("reading the snapshot: %w", err)
		case part.Error != nil:
			return fmt.Errorf("reading the snapshot: %s", part.Error)
		}
		if _, err := dst.Write(part.Result.Blob); err != nil {
			return err
		}
	}
}

// RestoreEtcd stops the API server and etcd, puts the content of a snapshot into a new data
// directory in place of etcd's, and starts both again. The arguments are for `etcdutl snapshot
// restore`.
func (c *Cluster) RestoreEtcd(ctx context.Context, snapshot string, args ...string) error {
	etcdutl := c.assets.path("etcdutl")
	if _, err := os.Stat(etcdutl); err != nil {
		return fmt.Errorf("%w: run `make controlplane`", err)
	}
	if err := errors.Join(c.APIServer.Stop(), c.Etcd.Stop()); err != nil {
		return err
	}
	data := c.files.pathTo("etcd")
	if err := os.RemoveAll(data); err != nil {
		return err
	}
	args = append([]string{"snapshot", "restore", snapshot, "--data-dir=" + data}, args...)
	if out, err := exec.CommandContext(ctx, etcdutl, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("etcdutl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	if err := c.Etcd.Start(ctx); err != nil {
		return err
	}
	return c.APIServer.Start(ctx)
}

// auditPolicy makes the API server log the requests of the operator, and nothing else.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: ["system:serviceaccount:` + Namespace + `:` + ServiceAccount + `"]
- level: None
`

// Audited represents one request of the operator, as the API server logged it.
type Audited struct {
	Verb      string
	ObjectRef struct {
		APIGroup, Resource, Subresource, Namespace, Name string
	}
	RequestURI               string
	RequestReceivedTimestamp time.Time
	ResponseStatus           struct{ Code int }
	Annotations              map[string]string
}

// Forbidden reports whether the operator had no right to make the request.
func (a Audited) Forbidden() bool { return a.Annotations["authorization.k8s.io/decision"] == "forbid" }

// audit turns the API server's audit log on. It must be called before the API server starts.
func (c *Cluster) audit() error {
	policy := c.files.pathTo("auth", "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return err
	}
	c.plane.APIServer.Configure().
		Set("audit-policy-file", policy).
		Set("audit-log-path", c.files.logPath("audit"))
	return nil
}

// Audit returns all requests that the operator has made to the API server so far, if
// Options.Audit is set.
func (c *Cluster) Audit() ([]Audited, error) {
	log, err := os.Open(c.files.logPath("audit"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	return readAudit(log)
}

// readAudit reads the lines of an audit log that is being written: the last one counts when it
// is complete.
func readAudit(log io.Reader) ([]Audited, error) {
	var all []Audited
	lines := bufio.NewReader(log)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		var one Audited
		if err := json.Unmarshal(line, &one); err != nil {
			return nil, fmt.Errorf("reading the audit log: %w", err)
		}
		all = append(all, one)
	}
}
