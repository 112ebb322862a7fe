package certs

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/cadastre-dev/cadastre/internal/testing/must"
)

var whole = Options{
	Namespace: "system", SecretName: "secret", ServiceName: "service",
	MutatingWebhooks: []string{"first", "second"}, ValidatingWebhook: "validating",
}

// limitedManager implements a manager that refuses some runnables.
type limitedManager struct {
	ctrl.Manager
	refuses func(manager.Runnable) bool
}

var errRefused = errors.New("refused")

// Add implements manager.Manager.
func (m limitedManager) Add(r manager.Runnable) error {
	if m.refuses(r) {
		return errRefused
	}
	return m.Manager.Add(r)
}

func TestSetupFailsIfManagerCannotRunAllParts(t *testing.T) {
	coreAlone := runtime.NewScheme()
	must.Succeed(t, corev1.AddToScheme(coreAlone))
	for name, c := range map[string]struct {
		scheme  *runtime.Scheme
		refuses func(manager.Runnable) bool
		fails   bool
	}{
		"a whole manager":            {clientgoscheme.Scheme, func(manager.Runnable) bool { return false }, false},
		"it refuses the controller":  {clientgoscheme.Scheme, func(r manager.Runnable) bool { _, isCache := r.(everywhere); return !isCache }, true},
		"it refuses the caches":      {clientgoscheme.Scheme, func(r manager.Runnable) bool { _, isCache := r.(everywhere); return isCache }, true},
		"it knows no configurations": {coreAlone, func(manager.Runnable) bool { return false }, true},
	} {
		t.Run(name, func(t *testing.T) {
			skip := true
			mgr, err := ctrl.NewManager(&rest.Config{}, ctrl.Options{
				Scheme: c.scheme, Metrics: server.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: &skip},
				MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
					return testrestmapper.TestOnlyStaticRESTMapper(c.scheme), nil
				},
			})
			must.Succeed(t, err)
			certificate, err := New(whole, nil, nil)
			must.Succeed(t, err)
			paths, err := NewPaths(whole, PlainPaths{}, nil, nil)
			must.Succeed(t, err)
			limited := limitedManager{mgr, c.refuses}
			for prefix, err := range map[string]error{
				"webhook certificate: ": certificate.SetupWithManager(limited, nil),
				"webhook path: ":        paths.SetupWithManager(limited, nil),
			} {
				if (err != nil) != c.fails || c.fails && !strings.HasPrefix(err.Error(), prefix) {
					t.Errorf("%s%v", prefix, err)
				}
			}
		})
	}
}

func TestPassWaitsForConfigurationThatIsDeletedMeanwhile(t *testing.T) {
	gone := interceptor.NewClient(nil, interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return apierrors.NewNotFound(schema.GroupResource{}, "first")
		},
	})
	c, err := New(whole, nil, gone)
	must.Succeed(t, err)
	configuration := &admissionv1.MutatingWebhookConfiguration{}
	if err := c.changeConfiguration(t.Context(), configuration, func() bool { return true }); !errors.Is(err, errWait) {
		t.Errorf("got %v", err)
	}
}
