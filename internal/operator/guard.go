package operator

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"go.opentelemetry.io/otel/trace"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/cadastre-dev/cadastre/internal/certs"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/manifests"
	"github.com/cadastre-dev/cadastre/webhooks"
)

// These are the names of the objects that the operator keeps for its webhooks.
const (
	certificateSecret = "cadastre-webhook-server-cert"
	pathSecret        = "cadastre-webhook-path"
)

// guard holds the protection of the webhooks: their certificate, and the secret with which their
// paths begin.
type guard struct {
	certificate *certs.Certs
	paths       *certs.Paths
}

// newGuard makes the certificate and the paths. The client reads and writes without a cache;
// rollbacks makes the informers of what both watch.
func newGuard(direct client.Client, o Options, tracer trace.Tracer, rollbacks *rollbacks) (guard, error) {
	names := certs.Options{
		Namespace: o.Namespace, SecretName: certificateSecret, ServiceName: o.WebhookService, Mode: certs.Mode(o.CertSource),
		MutatingWebhooks: []string{manifests.MutatingWebhooks, manifests.ClusterWebhooks}, ValidatingWebhook: manifests.ValidatingWebhooks,
		Tracer: tracer, NewInformer: rollbacks.newInformer,
	}
	certificate, err := certs.New(names, direct, direct)
	if err != nil {
		return guard{}, err
	}
	names.SecretName, names.Mode = pathSecret, ""
	paths, err := certs.NewPaths(names, webhooks.Paths(), direct, direct)
	return guard{certificate: certificate, paths: paths}, err
}

// setup registers the controllers of the certificate and the paths.
func (g guard) setup(mgr ctrl.Manager, passes kubeutil.PassCounter) error {
	return errors.Join(g.certificate.SetupWithManager(mgr, passes), g.paths.SetupWithManager(mgr, passes))
}

// server makes the webhook server.
func (g guard) server(o Options, accepts []func(*tls.Config)) (webhook.Server, error) {
	clients, err := clientAuthority(o.WebhookClientCA)
	if err != nil {
		return nil, err
	}
	server := webhook.NewServer(webhook.Options{
		Host: o.WebhookHost, Port: o.WebhookPort,
		TLSOpts: append(accepts, clients, func(c *tls.Config) { c.GetCertificate = g.certificate.GetCertificate }),
	})
	return webhooks.NewServer(server, g.paths), nil
}

// clientAuthority returns a TLS setting with which a server requires a client certificate of
// the authorities in a file. Without a file the setting changes nothing.
func clientAuthority(file string) (func(*tls.Config), error) {
	if file == "" {
		return func(*tls.Config) {}, nil
	}
	bundle, err := os.ReadFile(file) //nolint:gosec // the flag names it
	if err != nil {
		return nil, fmt.Errorf("--webhook-client-ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle) {
		return nil, fmt.Errorf("--webhook-client-ca: %s has no PEM certificate: name a file with the authority of the API servers' client certificates", file)
	}
	return func(c *tls.Config) { c.ClientCAs, c.ClientAuth = pool, tls.RequireAndVerifyClientCert }, nil
}
