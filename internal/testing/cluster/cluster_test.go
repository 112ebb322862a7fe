package cluster

import (
	"os"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	review, err := clients.AuthenticationV1().SelfSubjectReviews().
		Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kept"}}
	if err := k8s.Create(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
	if err := c.APIServer.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := c.Etcd.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.APIServer.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := k8s.Get(t.Context(), client.ObjectKeyFromObject(kept), kept); err != nil {
		t.Errorf("reading the objects from before: %v", err)
	}
}
