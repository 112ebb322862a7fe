package controller

import (
	"context"
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/cadastre-dev/cadastre/internal/controller/allocationgc"
	"github.com/cadastre-dev/cadastre/internal/controller/ipaddressclaim"
	"github.com/cadastre-dev/cadastre/internal/controller/ipclaim"
	"github.com/cadastre-dev/cadastre/internal/controller/ipclass"
	"github.com/cadastre-dev/cadastre/internal/controller/ippool"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/replica"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// TestRegistrationFailureIsReported registers each controller twice: no name is left
// for the second.
func TestRegistrationFailureIsReported(t *testing.T) {
	r := replica.New(replica.Options{})
	for name, c := range map[string]interface{ SetupWithManager(manager.Manager) error }{
		"allocationgc":   &allocationgc.Controller{Ledger: r.Ledger, Catalog: r.Catalog, Allocator: r.Allocator, Metrics: r.Metrics, History: r.History},
		"ipaddressclaim": &ipaddressclaim.Controller{Ledger: r.Ledger, Catalog: r.Catalog, Queue: r.Queue, Allocator: r.Allocator, Metrics: r.Metrics, Orphans: noOrphans{}},
		"ipclaim":        &ipclaim.Controller{Ledger: r.Ledger, Catalog: r.Catalog, Queue: r.Queue, Allocator: r.Allocator, Metrics: r.Metrics},
		"ipclass":        &ipclass.Controller{Ledger: r.Ledger, Catalog: r.Catalog, Metrics: r.Metrics},
		"ippool":         &ippool.Controller{Ledger: r.Ledger, Catalog: r.Catalog, Queue: r.Queue, Allocator: r.Allocator, Metrics: r.Metrics},
	} {
		t.Run(name, func(t *testing.T) {
			mgr := newUnconnectedManager(t)
			suite.Must(t, setup(mgr, c))
			if err := setup(mgr, c); err == nil {
				t.Error("a second one of the name is registered")
			}
		})
	}
}

// unconnected returns a manager that is never started.
func newUnconnectedManager(t *testing.T) manager.Manager {
	t.Helper()
	scheme, err := cluster.Scheme()
	suite.Must(t, err)
	mgr, err := manager.New(&rest.Config{Host: "https://127.0.0.1:1"}, manager.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return meta.NewDefaultRESTMapper(nil), nil },
	})
	suite.Must(t, err)
	return mgr
}

// noOrphans implements ipaddressclaim.Orphans, and collects none.
type noOrphans struct{}

func (noOrphans) Judge(string, func(context.Context, client.Reader, ipam.Record) (bool, error)) {}
func (noOrphans) ReportDeleted(string, ...ipam.Name)                                            {}
func (noOrphans) Enqueue(...ipam.Name)                                                          {}
