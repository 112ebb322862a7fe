package cluster

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/cadastre-dev/cadastre/internal/testing/proxy"
)

// Namespace and ServiceAccount are the operator's own, unless it was installed elsewhere.
const (
	Namespace      = "cadastre-system"
	ServiceAccount = "cadastre-controller-manager"
)

// Manager represents one replica of the operator, a process under the operator's service
// account. It is ready when its /readyz reports that.
type Manager struct {
	*Process
	// WebhookAddress is the address at which it serves its webhooks, behind the balancer.
	WebhookAddress string
	// MetricsAddress and ProbeAddress are the addresses at which it serves /metrics, and
	// /healthz and /readyz.
	MetricsAddress, ProbeAddress string
	// API is the proxy through which it reaches the API server; nil if it reaches it directly.
	API *proxy.Proxy
}

// replica holds the settings of one manager.
type replica struct {
	number     int
	namespace  string
	account    string
	binary     string
	kubeconfig string
	webhook    string // its address, which the balancer knows
	args, env  []string
	files      *runDir
	revive     bool
	api        *proxy.Proxy
}

// reviveAfter is the time that a manager must have lived to be started again.
const reviveAfter = 3 * time.Second

func newManager(r replica, free *ports) (*Manager, error) {
	freePorts, err := free.several(2)
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(r.webhook)
	if err != nil {
		return nil, err
	}
	m := &Manager{
		WebhookAddress: r.webhook,
		MetricsAddress: loopback(freePorts[0]),
		ProbeAddress:   loopback(freePorts[1]),
		API:            r.api,
	}
	name := "manager-" + strconv.Itoa(r.number)
	m.Process = &Process{
		Name: name,
		path: r.binary,
		// The addresses to listen on come last, so that they hold whatever r.args contain.
		Args: append(slices.Clone(r.args),
			"--kubeconfig="+r.kubeconfig,
			"--webhook-bind-host="+host,
			"--webhook-port="+port,
			// By the names that earlier builds know too.
			"--metrics-bind-address="+m.MetricsAddress,
			"--health-probe-bind-address="+m.ProbeAddress,
		),
		Env: append([]string{
			"POD_NAMESPACE=" + r.namespace, "POD_SERVICE_ACCOUNT=" + r.account, "POD_NAME=" + name,
		}, r.env...),
		ready: answersOK(fmt.Sprintf("http://%s/readyz", m.ProbeAddress)),
		files: r.files,
	}
	if r.revive {
		m.reviveAfter = reviveAfter
	}
	return m, nil
}
