package certs

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/cadastre-dev/cadastre/internal/observe/tracing"
)

// Mode says who issues the certificate.
type Mode string

const (
	// SelfSigned is for an operator that issues and renews it, with an authority of
	// its own that it injects into the webhook configurations.
	SelfSigned Mode = "self-signed"
	// FromSecret is for one that only reads the Secret: somebody else (cert-manager)
	// writes it and injects the bundle.
	FromSecret Mode = "secret"
)

// Options say which objects a [Certs] keeps.
type Options struct {
	// Mode is SelfSigned where it is empty.
	Mode Mode
	// Namespace is the operator's: that of the Secret and of the Service.
	Namespace string
	// SecretName is the Secret with the certificate.
	SecretName string
	// ServiceName is the Service by which the configurations name the webhooks.
	ServiceName string
	// MutatingWebhook and ValidatingWebhook are the configurations that have to
	// trust the certificate. They may be made after the operator has started.
	MutatingWebhook, ValidatingWebhook string
	// Tracer has a span for each pass. Nil: there are none.
	Tracer *tracing.Tracer
	// Clock is the real one where it is nil.
	Clock clock.PassiveClock
}

func (o Options) validate() error {
	if o.Mode != SelfSigned && o.Mode != FromSecret {
		return fmt.Errorf("mode %q is neither %q nor %q", o.Mode, SelfSigned, FromSecret)
	}
	if o.Namespace == "" || o.SecretName == "" {
		return errors.New("the Secret needs a namespace and a name")
	}
	if o.Mode == SelfSigned && (o.ServiceName == "" || o.MutatingWebhook == "" || o.ValidatingWebhook == "") {
		return errors.New("the Service and both webhook configurations need a name")
	}
	return nil
}

func (o Options) secret() types.NamespacedName {
	return types.NamespacedName{Namespace: o.Namespace, Name: o.SecretName}
}

// names are those that the certificate has to be good for. The API server asks
// for the first.
func (o Options) names() []string {
	name := o.ServiceName + "." + o.Namespace + ".svc"
	return []string{name, name + ".cluster.local"}
}

// handover is for how long a certificate that replaces a good one waits: for API
// servers whose watch shows them the new bundle late.
const handover = 10 * time.Second
