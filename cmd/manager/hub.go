package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/logs"
	logsv1 "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/provisioner"
	"github.com/cadastre-dev/cadastre/provisioner/hub"
)

// hubCommand is the command that runs the provisioner of a hub.
const hubCommand = "hub-provisioner"

// hubFlags holds the flags of hub-provisioner.
type hubFlags struct {
	run        provisioner.Options
	hub        hub.Options
	kubeconfig string
}

// startHub reads the flags of hub-provisioner, and runs it.
func startHub(args []string) error {
	flags, f, logging := pflag.NewFlagSet(hubCommand, pflag.ContinueOnError), hubFlags{}, logs.NewOptions()
	flags.StringVar(&f.run.Name, "name", "ipam.cadastre.dev/hub", "spec.provisioner of the IPClasses whose pools it makes")
	flags.StringVar(&f.run.Namespace, "namespace", "cadastre-system", "the namespace of its lease and of the ConfigMap with its keys")
	flags.DurationVar(&f.run.Timeout, "hub-timeout", 0, "the time after which a call of the hub is given up (default 30s)")
	flags.DurationVar(&f.run.Resync, "resync", 0, "the time after which the hub is asked again for the range of each pool (default 10m)")
	flags.StringVar(&f.run.MetricsBindAddress, "metrics-bind-address", "", "the address of /metrics, such as :8080; empty: none")
	flags.StringVar(&f.run.HealthProbeBindAddress, "health-probe-bind-address", ":8081", "the address of /healthz and /readyz; empty: none")
	flags.StringVar(&f.kubeconfig, "hub-kubeconfig", "", "the kubeconfig of the hub, which is read again when it changes")
	flags.StringVar(&f.hub.Namespace, "hub-namespace", "", "the namespace of the claims in the hub")
	flags.StringVar(&f.hub.Cluster, "cluster-name", "", "the name of this cluster in the hub (default: the UID of the Namespace kube-system)")
	logsv1.AddFlags(logging, flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	for _, required := range []string{"hub-kubeconfig", "hub-namespace"} {
		if !flags.Changed(required) {
			return fmt.Errorf("--%s is not set: set it", required)
		}
	}
	if err := logsv1.ValidateAndApply(logging, nil); err != nil {
		return err
	}
	ctrl.SetLogger(klog.Background())
	f.run.Log = klog.Background()
	return runHub(ctrl.SetupSignalHandler(), f)
}

func runHub(ctx context.Context, f hubFlags) error {
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	return provisioner.Run(ctx, cfg, hub.New((&kubeconfig{file: f.kubeconfig}).client, f.hub), f.run)
}

// kubeconfig makes a client by a file, and another one when the file has changed: a Secret that is mounted is
// renewed while the process runs. It may be used concurrently.
type kubeconfig struct {
	file string

	mu     sync.Mutex
	text   []byte
	latest client.Client
}

func (k *kubeconfig) client() (client.Client, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	text, err := os.ReadFile(k.file)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of the hub: %w", err)
	}
	if k.latest != nil && bytes.Equal(text, k.text) {
		return k.latest, nil
	}
	cfg, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig of the hub, %s, is not valid: %w", k.file, err)
	}
	made, err := hub.NewClient(cfg)
	if err != nil {
		return nil, fmt.Errorf("connecting to the hub: %w", err)
	}
	k.text, k.latest = text, made
	return made, nil
}
