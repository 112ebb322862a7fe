// The certmanager command runs the controllers of cert-manager that issue certificates and inject
// their authorities, in one process. cert-manager's own commands are modules inside of its
// repository that have no versions, so no other module can require them; the code that they run
// is in its main module, which this command uses. ACME, Vault, Venafi, the shims for Ingress and
// Gateway and its webhook are left out.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	cmapi "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/cert-manager/cert-manager/pkg/controller"
	"github.com/cert-manager/cert-manager/pkg/controller/cainjector"
	"github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	crca "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	crselfsigned "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	"github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// controllers returns the names of the controllers between an Issuer, a Certificate and its Secret.
func controllers() []string {
	return []string{
		issuers.ControllerName,
		trigger.ControllerName, keymanager.ControllerName, requestmanager.ControllerName,
		issuing.ControllerName, readiness.ControllerName, revisionmanager.ControllerName,
		approver.ControllerName, crselfsigned.CRControllerName, crca.CRControllerName,
	}
}

// workers is the number of objects that each controller takes at once.
const workers = 2

func main() {
	probes := flag.String("health-probe-bind-address", "", "where /readyz is answered")
	flag.Parse() // --kubeconfig is a flag of controller-runtime
	logger := klog.Background()
	log.SetLogger(logger)
	ctx := log.IntoContext(ctrl.SetupSignalHandler(), logger)
	if err := run(ctx, flag.Lookup("kubeconfig").Value.String(), *probes); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "cert-manager:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, probes string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, cmapi.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	config.UserAgent = "cert-manager-cainjector/test"
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, HealthProbeBindAddress: probes, Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	err = cainjector.RegisterAllInjectors(ctx, mgr, cainjector.SetupOptions{
		EnableCertificatesDataSource: true,
		EnabledReconcilersFor: map[string]bool{
			cainjector.MutatingWebhookConfigurationName: true, cainjector.ValidatingWebhookConfigurationName: true,
		},
	})
	if err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	issue := manager.RunnableFunc(func(ctx context.Context) error { return issueCertificates(ctx, kubeconfig) })
	if err := mgr.Add(issue); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// issueCertificates runs the controllers until ctx ends, or one of them fails.
func issueCertificates(ctx context.Context, kubeconfig string) error {
	factory, err := controller.NewContextFactory(ctx, controller.ContextOptions{
		Kubeconfig: kubeconfig, KubernetesAPIQPS: 100, KubernetesAPIBurst: 200,
		CertificateOptions: controller.CertificateOptions{
			CertificateRequestMinimumBackoffDuration: time.Second, CertificateRequestMaximumBackoffDuration: time.Minute,
		},
		IssuerOptions: controller.IssuerOptions{ClusterResourceNamespace: "cert-manager"},
	})
	if err != nil {
		return err
	}
	names := controllers()
	ended := make(chan error, len(names))
	for _, name := range names {
		controls, err := controller.Known()[name](factory)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		go func() { ended <- controls.Run(workers, ctx) }()
	}
	shared, err := factory.Build()
	if err != nil {
		return err
	}
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	for range names {
		if err := <-ended; err != nil {
			return err
		}
	}
	return nil
}
