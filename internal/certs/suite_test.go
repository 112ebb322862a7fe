package certs

import (
	"context"
	"crypto/tls"
	"flag"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

var (
	control *envtest.Environment
	admin   client.WithWatch
)

func TestCerts(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second) // a replica looks again a second after another one has written
	suiteConfig, reporterConfig := GinkgoConfiguration()
	suiteConfig.FailFast = suiteConfig.FailFast || flag.Lookup("test.failfast").Value.String() == "true"
	RunSpecs(t, "certs", suiteConfig, reporterConfig)
}

var _ = BeforeSuite(func() {
	log.SetLogger(GinkgoLogr)
	apiServer, err := cluster.Binary("kube-apiserver")
	suite.Must(GinkgoTB(), err)
	// On a machine that does other work the API server takes longer than the default of 20 s.
	control = &envtest.Environment{BinaryAssetsDirectory: filepath.Dir(apiServer), ControlPlaneStartTimeout: time.Minute}
	config, err := control.Start()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(control.Stop)
	admin, err = client.NewWithWatch(config, client.Options{})
	Expect(err).NotTo(HaveOccurred())
})

// servedCertificate returns the certificate that a replica serves, or nil.
func servedCertificate(c *Certs) *tls.Certificate {
	certificate, err := c.GetCertificate(nil)
	if err != nil {
		return nil
	}
	return certificate
}

// createObjects makes objects that are deleted after the spec.
func createObjects(ctx context.Context, objects ...client.Object) {
	GinkgoHelper()
	for _, object := range objects {
		Expect(admin.Create(ctx, object)).To(Succeed())
		DeferCleanup(func(ctx context.Context) error { return client.IgnoreNotFound(admin.Delete(ctx, object)) })
	}
}
