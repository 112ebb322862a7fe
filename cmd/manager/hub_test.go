package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// TestRenewedKubeconfigIsUsed covers a Secret that is renewed while the process runs.
func TestRenewedKubeconfigIsUsed(t *testing.T) {
	k := &kubeconfig{file: filepath.Join(t.TempDir(), "kubeconfig")}
	if _, err := k.client(); err == nil || !strings.Contains(err.Error(), "reading the kubeconfig of the hub") {
		t.Errorf("without a file: got %v", err)
	}
	write := func(token string) {
		config := clientcmdapi.NewConfig()
		config.Clusters["hub"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
		config.AuthInfos["hub"] = &clientcmdapi.AuthInfo{Token: token}
		config.Contexts["hub"] = &clientcmdapi.Context{Cluster: "hub", AuthInfo: "hub"}
		config.CurrentContext = "hub"
		if err := clientcmd.WriteToFile(*config, k.file); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	first, err := k.client()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := k.client(); err != nil || again != first {
		t.Errorf("an unchanged file: got another client, %v", err)
	}
	write("second")
	second, err := k.client()
	if err != nil || second == first {
		t.Errorf("a changed file: got the same client, %v", err)
	}
	if err := os.WriteFile(k.file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := k.client(); err == nil || !strings.Contains(err.Error(), "is not valid") {
		t.Errorf("a file that is half written: got %v", err)
	}
	write("second")
	if again, err := k.client(); err != nil || again != second {
		t.Errorf("the file of before: got another client, %v", err)
	}
}

func TestHubProvisionerNamesMissingFlag(t *testing.T) {
	for missing, args := range map[string][]string{
		"--hub-kubeconfig is not set": {"--hub-namespace=clusters"}, "--hub-namespace is not set": {"--hub-kubeconfig=x"},
	} {
		if err := start(pflag.NewFlagSet("manager", pflag.ContinueOnError), append([]string{hubCommand}, args...)); err == nil || !strings.Contains(err.Error(), missing) {
			t.Errorf("got %v, want %s", err, missing)
		}
	}
}
