package cluster

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/testing/must"
)

// TestCluster runs all components, with managers that the test binary plays.
func TestCluster(t *testing.T) {
	t.Setenv(playEnv, playManager)
	c, err := Start(t.Context(), Options{
		ControllerManager: true,
		Managers:          2,
		ManagerBinary:     os.Args[0],
		Progress:          t.Output(),
	})
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
		for _, m := range c.Managers {
			if m.Running() {
				t.Errorf("%s runs after Stop", m.Name)
			}
		}
		if _, err := os.Stat(c.files.path); !os.IsNotExist(err) {
			t.Errorf("the temporary directory is still there (%v)", err)
		}
	})

	t.Run("the operator has its own account", func(t *testing.T) { hasOwnAccount(t, c) })
	t.Run("a namespace that is deleted goes away", func(t *testing.T) { deletesNamespace(t, c) })
	t.Run("objects survive a restart", func(t *testing.T) { keepsData(t, c) })
}

func hasOwnAccount(t *testing.T, c *Cluster) {
	config, err := c.OperatorConfig(t.Context())
	must.Succeed(t, err)
	clients, err := kubernetes.NewForConfig(config)
	must.Succeed(t, err)
	review, err := clients.AuthenticationV1().SelfSubjectReviews().
		Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	must.Succeed(t, err)
	want := "system:serviceaccount:" + Namespace + ":" + ServiceAccount
	if got := review.Status.UserInfo.Username; got != want {
		t.Errorf("the operator is %s, want %s", got, want)
	}
	err = clients.CoreV1().Namespaces().Delete(t.Context(), Namespace, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	if err == nil {
		t.Error("the operator can delete namespaces")
	}
}

func deletesNamespace(t *testing.T, c *Cluster) {
	for _, args := range [][]string{
		{"create", "namespace", "short-lived"},
		{"create", "configmap", "content", "--namespace=short-lived"},
		{"delete", "namespace", "short-lived", "--wait", "--timeout=60s"},
	} {
		if _, err := c.Kubectl(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
}

func keepsData(t *testing.T, c *Cluster) {
	k8s, err := client.New(c.Config(), client.Options{})
	must.Succeed(t, err)
	kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kept"}}
	must.Succeed(t, k8s.Create(t.Context(), kept))
	must.Succeed(t, c.APIServer.Kill())
	must.Succeed(t, c.Etcd.Restart(t.Context()))
	must.Succeed(t, c.APIServer.Start(t.Context()))
	if err := k8s.Get(t.Context(), client.ObjectKeyFromObject(kept), kept); err != nil {
		t.Errorf("reading the objects from before: %v", err)
	}
}

// The test binary also plays the programs that the tests run: the environment variable playEnv
// selects one.
const (
	playEnv = "CADASTRE_TEST_PLAY"
	// playManager is ready at once and does nothing.
	playManager = "manager"
	// playQuitter ends before it is ready.
	playQuitter = "quitter"
	// playOwner starts a manager under a leash, prints where it answers, and
	// waits to be killed.
	playOwner = "owner"
)

func TestMain(m *testing.M) {
	switch os.Getenv(playEnv) {
	case playManager:
		serveProbes()
	case playQuitter:
		fmt.Fprintln(os.Stdout, "quitting")
	case playOwner:
		ownManager()
	default:
		os.Exit(m.Run())
	}
}

func serveProbes() {
	for _, arg := range os.Args {
		if address, ok := strings.CutPrefix(arg, "--health-probe-bind-address="); ok {
			ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
			server := http.Server{Addr: address, Handler: ok, ReadHeaderTimeout: time.Second}
			fmt.Fprintln(os.Stdout, server.ListenAndServe())
		}
	}
}

func TestAuditSkipsUnfinishedLine(t *testing.T) {
	for log, want := range map[string]int{
		"":                                      0,
		`{"verb":"get"}` + "\n":                 1,
		`{"verb":"get"}` + "\n" + `{"verb":"li`: 1,
		`{"verb":"get"}` + "\n" + `{"verb":"list"}`:  1,
		`{"verb":"get"}` + "\n{\"verb\":\"list\"}\n": 2,
	} {
		got, err := readAudit(strings.NewReader(log))
		if err != nil || len(got) != want {
			t.Errorf("%q: %d requests, %v; want %d", log, len(got), err, want)
		}
	}
	if _, err := readAudit(strings.NewReader("{\n")); err == nil {
		t.Error("a complete line that is no JSON was accepted")
	}
}
