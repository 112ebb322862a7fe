package certs

import (
	"bufio"
	"context"
	"crypto/tls"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// The names in the markers.
var installed = Options{
	Namespace: "cadastre-system", SecretName: "cadastre-webhook-server-cert", ServiceName: "cadastre-webhook-service",
	MutatingWebhooks:  []string{"zz-cadastre-mutating-webhook-configuration", "aa-cadastre-cluster"},
	ValidatingWebhook: "cadastre-validating-webhook-configuration",
}

// One replica serves the mutating webhooks, the other one the validating webhook: an object that
// passes both was accepted by both.
var _ = Describe("Two managers that have only the rights of the markers", func() {
	It("serve webhooks that the API server can call, after any change to the objects", func(ctx SpecContext) {
		createObjects(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: installed.Namespace}})
		user, err := control.AddUser(envtest.User{Name: "operator"}, nil)
		Expect(err).NotTo(HaveOccurred())
		createObjects(ctx, rights("operator")...)

		ports := []int32{freePort(), freePort()}
		var passes passCount
		replicas := []*Certs{startCerts(user.Config(), ports[0], &passes), startCerts(user.Config(), ports[1], &passes)}
		for _, c := range replicas {
			Eventually(func() error { return c.Check(nil) }).Should(MatchError(ContainSubstring(
				"waiting for %s, %s, %s", installed.MutatingWebhooks[0], installed.MutatingWebhooks[1], installed.ValidatingWebhook)))
			Expect(servedCertificate(c)).NotTo(BeNil())
		}

		w := &world{options: installed}
		w.mutating = mutating(installed.MutatingWebhooks[0], reference(ports[0]), "a.example.com", "b.example.com")
		w.second = mutating(installed.MutatingWebhooks[1], reference(ports[0]), "d.example.com")
		w.validating = validating(installed.ValidatingWebhook, reference(ports[1]))
		createObjects(ctx, service(ports))
		w.installed(ctx)
		for _, c := range replicas {
			Eventually(c.Ready()).Should(BeClosed())
			Expect(c.Check(nil)).To(Succeed())
		}
		Eventually(createReviewedObject).WithContext(ctx).Should(Succeed())

		for what, harm := range map[string]func(){
			"deleting the Secret":        func() { w.deleted(ctx) },
			"taking the authority's key": func() { w.harmed(ctx, func(s *corev1.Secret) { delete(s.Data, "ca.key") }) },
			"spoiling the certificate":   func() { w.harmed(ctx, func(s *corev1.Secret) { s.Data["tls.crt"] = []byte("?") }) },
		} {
			By(what)
			before := servedCertificate(replicas[0])
			harm()
			Eventually(func() bool {
				Expect(createReviewedObject(ctx)).To(Succeed(), "after "+what)
				a, b := servedCertificate(replicas[0]), servedCertificate(replicas[1])
				return isSameCertificate(a, b) && !isSameCertificate(a, before)
			}).WithPolling(10 * time.Millisecond).WithTimeout(20 * time.Second).Should(BeTrue())
		}

		for i := range w.configurations(ctx) {
			awaitNoPass(&passes) // so only the watch of this configuration can start the next one
			wiped := w.configurations(ctx)[i]
			By("wiping " + wiped.GetName())
			setBundle(wiped, nil)
			Expect(admin.Update(ctx, wiped)).To(Succeed())
			Eventually(w.bundles).WithArguments(ctx).Should(HaveEach(string(w.secret(ctx).Data["ca.crt"])))
		}
		Eventually(createReviewedObject).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(2*time.Minute))
})

// passCount counts the passes of several replicas.
type passCount struct{ atomic.Int64 }

// Passed implements kubeutil.PassCounter.
func (p *passCount) Passed(_, _ string) { p.Add(1) }

// awaitNoPass blocks until no pass ends for longer than a handover.
func awaitNoPass(passes *passCount) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Consistently(passes.Load).WithTimeout(1500 * time.Millisecond).Should(Equal(passes.Load()))
	}).Should(Succeed())
}

// startCerts starts a manager as cmd/manager makes it, with a certificate that hands over after a
// second. Only one of them is ever elected.
func startCerts(user *rest.Config, port int32, passes *passCount) *Certs {
	GinkgoHelper()
	skip := true
	scheme := runtime.NewScheme() // one each, as a manager adds to its scheme
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	direct, err := client.New(user, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	c, err := New(installed, direct, direct)
	Expect(err).NotTo(HaveOccurred())
	c.handover = time.Second
	mgr, err := ctrl.NewManager(user, ctrl.Options{
		Scheme:                  scheme,
		Controller:              config.Controller{SkipNameValidation: &skip},
		Metrics:                 server.Options{BindAddress: "0"},
		LeaderElection:          true,
		LeaderElectionID:        "certs",
		LeaderElectionNamespace: installed.Namespace,
		LeaderElectionConfig:    control.Config,
		WebhookServer: webhook.NewServer(webhook.Options{
			Host: "127.0.0.1", Port: int(port),
			TLSOpts: []func(*tls.Config){func(t *tls.Config) { t.GetCertificate = c.GetCertificate }},
		}),
	})
	Expect(err).NotTo(HaveOccurred())
	Expect(c.SetupWithManager(mgr, passes)).To(Succeed())
	mgr.GetWebhookServer().Register("/review", &admission.Webhook{
		Handler: admission.HandlerFunc(func(context.Context, admission.Request) admission.Response {
			return admission.Allowed("")
		}),
	})
	running, stop := context.WithCancel(context.Background())
	stopped := make(chan error)
	go func() { stopped <- mgr.Start(running) }()
	DeferCleanup(func() {
		stop()
		Eventually(stopped).WithTimeout(30 * time.Second).Should(Receive(BeNil()))
	})
	return c
}

// createReviewedObject creates a ConfigMap that both webhooks have to let through.
func createReviewedObject(ctx context.Context) error {
	return admin.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "reviewed-", Namespace: installed.Namespace, Labels: map[string]string{"webhooks": installed.Namespace},
	}}, client.DryRunAll)
}

func reference(port int32) admissionv1.ServiceReference {
	path := "/review"
	return admissionv1.ServiceReference{Namespace: installed.Namespace, Name: installed.ServiceName, Path: &path, Port: &port}
}

// service returns a Service that leads to the managers, which are no Pods.
func service(ports []int32) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: installed.Namespace, Name: installed.ServiceName},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "127.0.0.1"},
	}
	for i, port := range ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: string(rune('a' + i)), Port: port})
	}
	return s
}

func freePort() int32 {
	GinkgoHelper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = listener.Close() }()
	address, _ := listener.Addr().(*net.TCPAddr)
	return int32(address.Port)
}

// rights returns the roles that the markers in certs.go make, bound to a user.
func rights(user string) []client.Object {
	GinkgoHelper()
	file, err := os.Open("certs.go")
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = file.Close() }()
	rules := map[string][]rbacv1.PolicyRule{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if _, marker, found := strings.Cut(lines.Text(), "+kubebuilder:rbac:"); found {
			namespace, rule := parseMarker(marker)
			rules[namespace] = append(rules[namespace], rule)
		}
	}
	Expect(rules).To(HaveLen(2))
	meta := metav1.ObjectMeta{Name: user}
	inNamespace := metav1.ObjectMeta{Name: user, Namespace: installed.Namespace}
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}}
	return []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules[""]},
		&rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user}},
		&rbacv1.Role{ObjectMeta: inNamespace, Rules: rules[installed.Namespace]},
		&rbacv1.RoleBinding{ObjectMeta: inNamespace, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user}},
	}
}

func parseMarker(marker string) (namespace string, rule rbacv1.PolicyRule) {
	for field := range strings.SplitSeq(marker, ",") {
		key, value, _ := strings.Cut(field, "=")
		values := strings.Split(strings.Trim(value, `"`), ";")
		switch key {
		case "groups":
			rule.APIGroups = values
		case "resources":
			rule.Resources = values
		case "resourceNames":
			rule.ResourceNames = values
		case "verbs":
			rule.Verbs = values
		case "namespace":
			namespace = value
		}
	}
	return namespace, rule
}
