package app

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
)

// env is what all commands work with: the cluster and the namespace that the caller
// chooses, as in kubectl, and where to print.
type env struct {
	genericiooptions.IOStreams
	flags *genericclioptions.ConfigFlags
	color string
	clock clock.PassiveClock
	// everywhere has an error where the caller may not list something in all namespaces.
	everywhere bool
	// server is the API server's clock.
	server *serverClock
}

func newEnv(streams genericiooptions.IOStreams) *env {
	own := clock.RealClock{}
	return &env{IOStreams: streams, flags: genericclioptions.NewConfigFlags(true), color: "auto", clock: own, server: &serverClock{clock: own}}
}

func (e *env) bind(root *cobra.Command) {
	e.flags.AddFlags(root.PersistentFlags())
	root.PersistentFlags().Lookup("cache-dir").DefValue = "$HOME/.kube/cache"
	root.PersistentFlags().StringVar(&e.color, "color", e.color, "whether to print in colour: auto (on a terminal, unless NO_COLOR is set), always or never")
	complete(root, "color", colors()...)
	completeWith(root, "namespace", e.completeNamespaces)
}

// bindEverywhere registers the flag of kubectl for a command that reads all namespaces where
// the caller may.
func (e *env) bindEverywhere(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&e.everywhere, "all-namespaces", "A", false, "fail where you may not read all namespaces; without it, what you may not read is left out")
}

func colors() []string { return []string{"auto", "always", "never"} }

func (e *env) checkColor() error {
	if !slices.Contains(colors(), e.color) {
		return coded(ExitUsage, fmt.Errorf("--color=%s: is none of auto, always and never", e.color))
	}
	return nil
}

// painted reports whether to print in colour. NO_COLOR counts where nothing is asked for
// (https://no-color.org).
func (e *env) painted() bool {
	if e.color != "auto" {
		return e.color == "always"
	}
	file, isFile := e.Out.(*os.File)
	return isFile && os.Getenv("NO_COLOR") == "" && term.IsTerminal(int(file.Fd()))
}

// config is the client configuration that the caller's kubeconfig and flags come to. The
// API server limits the rate of requests, not the client.
func (e *env) config() (*rest.Config, error) {
	config, err := e.flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.UserAgent = "kubectl-ipam"
	config.WarningHandler = rest.NewWarningWriter(e.ErrOut, rest.WarningWriterOptions{Deduplicate: true, Color: e.painted()})
	config.Wrap(e.server.over)
	return config, nil
}

func (e *env) client() (client.WithWatch, error) {
	config, err := e.config()
	if err != nil {
		return nil, err
	}
	return client.NewWithWatch(config, client.Options{Scheme: scheme()})
}

// namespace is what -n says, or else the kubeconfig's context.
func (e *env) namespace() (string, error) {
	namespace, _, err := e.flags.ToRawKubeConfigLoader().Namespace()
	return namespace, err
}

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	utilruntime.Must(ipamv1.AddToScheme(s))
	return s
}

// read reads the whole register with the caller's rights. What is missing in it is said on
// the error stream.
func (e *env) read(cmd *cobra.Command) (*register.Register, error) {
	return e.readScope(cmd, register.Scope{})
}

// readScope is read with some of the records.
func (e *env) readScope(cmd *cobra.Command, scope register.Scope) (*register.Register, error) {
	r, err := e.readQuietly(cmd, scope)
	if err != nil {
		return nil, err
	}
	switch {
	case len(r.Unread) > 0 && e.everywhere:
		return nil, coded(ExitForbidden, errors.New(register.Explain(r.Unread)+": leave --all-namespaces out for the rest"))
	case len(r.Unread) > 0:
		e.note("%s", register.Explain(r.Unread))
	}
	for _, err := range r.Invalid {
		e.note("%v", err)
	}
	return r, nil
}

// readQuietly is readScope for the completion of a command line.
func (e *env) readQuietly(cmd *cobra.Command, scope register.Scope) (*register.Register, error) {
	config, err := e.config()
	if err != nil {
		return nil, err
	}
	c, err := e.client()
	if err != nil {
		return nil, err
	}
	source, err := register.NewSource(config, c, scheme())
	if err != nil {
		return nil, err
	}
	namespace, err := e.namespace()
	if err != nil {
		return nil, err
	}
	return register.Read(cmd.Context(), source, namespace, scope)
}

// note tells the caller something beside the report.
func (e *env) note(format string, args ...any) {
	fmt.Fprintf(e.ErrOut, "note: "+format+"\n", args...)
}
