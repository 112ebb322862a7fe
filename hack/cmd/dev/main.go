// Command dev runs Cadastre on this machine, without containers: a real control
// plane and the operator's managers as processes on loopback.
//
//	dev up [flags]    start it in the background, return when it is ready
//	dev down          stop the cluster that up started
//	dev demo [flags]  start it, claim blocks from config/samples, stay until Ctrl-C
//
// --replicas=N runs N managers. --cluster-api=false leaves out Cluster API's
// CRDs: of IPAddress, IPAddressClaim and Cluster, version v1beta2.
//
// `make up`, `make down` and `make demo` call it. It writes all files below .run:
// kubeconfig, logs/NAME.log, supervisor.log.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
)

// interrupted is the exit code of a command that Ctrl-C ended, as in shells.
const interrupted = 130

const usage = "usage: dev up|demo [--replicas=N] [--cluster-api=false] [--in-cluster-pools] | dev down"

// place holds the directories of one development cluster.
type place struct {
	moduleRoot string
	dir        string // .run
}

func (p place) join(name string) string { return filepath.Join(p.dir, name) }

// shown returns a path as a user in the module's root would type it.
func (p place) shown(path string) string {
	if relative, err := filepath.Rel(p.moduleRoot, path); err == nil {
		return relative
	}
	return path
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	switch {
	case errors.Is(err, context.Canceled):
		os.Exit(interrupted)
	case err != nil:
		fmt.Fprintln(os.Stderr, "dev:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	log.SetLogger(klog.Background())
	if len(args) == 0 {
		return errors.New(usage)
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	var with wanted
	flags.IntVar(&with.replicas, "replicas", 1, "how many managers run")
	flags.BoolVar(&with.clusterAPI, "cluster-api", true, "install Cluster API's CRDs")
	flags.BoolVar(&with.inClusterPools, "in-cluster-pools", false, "serve the pools of Cluster API's in-cluster provider, and install their CRDs")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	at, err := findPlace()
	if err != nil {
		return err
	}
	switch args[0] {
	case "up":
		return up(ctx, at, with)
	case "down":
		return down(ctx, at)
	case "demo":
		return demo(ctx, at, with)
	case superviseCommand:
		return supervise(ctx, at, with)
	default:
		return errors.New(usage)
	}
}

func findPlace() (place, error) {
	root, err := cluster.ModuleRoot()
	if err != nil {
		return place{}, err
	}
	at := place{moduleRoot: root, dir: filepath.Join(root, ".run")}
	return at, os.MkdirAll(at.dir, 0o700)
}

// wanted holds the values of the flags.
type wanted struct {
	replicas       int
	clusterAPI     bool
	inClusterPools bool
}

// args returns the flags with these values.
func (w wanted) args() []string {
	return []string{"--replicas=" + strconv.Itoa(w.replicas), "--cluster-api=" + strconv.FormatBool(w.clusterAPI), "--in-cluster-pools=" + strconv.FormatBool(w.inClusterPools)}
}

// options returns the options of a cluster for people: with all components, and files that stay.
func (w wanted) options(at place) cluster.Options {
	options := cluster.Options{
		Dir: at.dir, ControllerManager: true, Managers: w.replicas, Revive: true, ClusterAPICRDs: w.clusterAPI,
	}
	if w.inClusterPools {
		options.Manifests = filepath.Join(at.moduleRoot, "config", "overlays", "in-cluster-pools")
		options.ManagerArgs = []string{"--in-cluster-pools"}
	}
	return options
}
