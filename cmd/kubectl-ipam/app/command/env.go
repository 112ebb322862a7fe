// Package command holds the common parts of all commands of the kubectl plug-in: the caller's
// environment, flags, the output as a table, JSON or YAML, exit codes, and the wait for objects.
package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
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
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
)

// Env holds the environment of all commands: the cluster and the namespace that the caller
// chooses, as in kubectl, and the streams to print to.
type Env struct {
	genericiooptions.IOStreams
	Flags *genericclioptions.ConfigFlags
	color string
	Clock clock.PassiveClock
	// everywhere makes a command fail if the caller cannot list something in all namespaces.
	everywhere bool
	// Server is the API server's clock.
	Server *serverClock
}

// NewEnv returns the environment of a command that reads and writes these streams.
func NewEnv(streams genericiooptions.IOStreams) *Env {
	own := clock.RealClock{}
	return &Env{IOStreams: streams, Flags: genericclioptions.NewConfigFlags(true), color: "auto", Clock: own, Server: &serverClock{clock: own}}
}

// Bind binds the flags that all commands have.
func (e *Env) Bind(root *cobra.Command) {
	e.Flags.AddFlags(root.PersistentFlags())
	root.PersistentFlags().Lookup("cache-dir").DefValue = "$HOME/.kube/cache"
	root.PersistentFlags().StringVar(&e.color, "color", e.color, "whether to print in color: auto (on a terminal, unless NO_COLOR is set), always or never")
	limit(root, root.PersistentFlags(), "color", "auto", "always", "never")
	CompleteWith(root, "namespace", e.CompleteNames(&corev1.NamespaceList{}))
}

// BindEverywhere registers the flag of kubectl for a command that reads all namespaces if the
// caller can.
func (e *Env) BindEverywhere(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&e.everywhere, "all-namespaces", "A", false, "fail if you may not read all namespaces; without it, objects that you may not read are left out")
}

// Painted reports whether to print in color. NO_COLOR counts if --color is auto
// (https://no-color.org).
func (e *Env) Painted() bool {
	if e.color != "auto" {
		return e.color == "always"
	}
	file, isFile := e.Out.(*os.File)
	return isFile && os.Getenv("NO_COLOR") == "" && term.IsTerminal(int(file.Fd()))
}

// Config returns the client configuration that results from the caller's kubeconfig and flags.
// The API server limits the rate of requests, not the client.
func (e *Env) Config() (*rest.Config, error) {
	config, err := e.Flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.UserAgent = "kubectl-ipam"
	config.WarningHandler = rest.NewWarningWriter(e.ErrOut, rest.WarningWriterOptions{Deduplicate: true, Color: e.Painted()})
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &clockedTransport{next, e.Server} })
	return config, nil
}

// Client returns a client with the rights of the caller.
func (e *Env) Client() (client.WithWatch, error) {
	return e.newClient(func(*rest.Config) {})
}

// QuietClient returns such a client that prints no warnings.
func (e *Env) QuietClient() (client.WithWatch, error) {
	return e.newClient(func(config *rest.Config) { config.WarningHandler = rest.NoWarnings{} })
}

func (e *Env) newClient(change func(*rest.Config)) (client.WithWatch, error) {
	config, err := e.Config()
	if err != nil {
		return nil, err
	}
	change(config)
	return client.NewWithWatch(config, client.Options{Scheme: Scheme()})
}

// Namespace returns the namespace of -n, else that of the kubeconfig's context.
func (e *Env) Namespace() (string, error) {
	namespace, _, err := e.Flags.ToRawKubeConfigLoader().Namespace()
	return namespace, err
}

// ClientAndNamespace returns a client with the rights of the caller, and the caller's namespace.
func (e *Env) ClientAndNamespace() (client.WithWatch, string, error) {
	c, err := e.Client()
	if err != nil {
		return nil, "", err
	}
	namespace, err := e.Namespace()
	return c, namespace, err
}

// Scheme returns a scheme with all kinds that the plug-in reads.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	utilruntime.Must(ipamv1.AddToScheme(s))
	utilruntime.Must(incluster.AddToScheme(s))
	return s
}

// ReadScope reads the register, and of the records those in the scope, with the caller's rights. It
// reports the missing parts on the error stream.
func (e *Env) ReadScope(cmd *cobra.Command, scope register.Scope) (*register.Register, error) {
	r, err := e.ReadQuietly(cmd, scope)
	if err != nil {
		return nil, err
	}
	switch {
	case len(r.Unread) > 0 && e.everywhere:
		return nil, Coded(ExitForbidden, errors.New(register.Explain(r.Unread)+": leave --all-namespaces out for the rest"))
	case len(r.Unread) > 0:
		e.Note("%s", register.Explain(r.Unread))
	}
	for _, err := range r.Invalid {
		e.Note("%v", err)
	}
	return r, nil
}

// ReadQuietly reads the register like ReadScope, but without notes, for the completion of a
// command line.
func (e *Env) ReadQuietly(cmd *cobra.Command, scope register.Scope) (*register.Register, error) {
	config, err := e.Config()
	if err != nil {
		return nil, err
	}
	c, err := e.Client()
	if err != nil {
		return nil, err
	}
	source, err := register.NewSource(config, c, Scheme())
	if err != nil {
		return nil, err
	}
	namespace, err := e.Namespace()
	if err != nil {
		return nil, err
	}
	return register.Read(cmd.Context(), source, namespace, scope)
}

// Note prints a note for the caller beside the report.
func (e *Env) Note(format string, args ...any) {
	fmt.Fprintf(e.ErrOut, "note: "+format+"\n", args...)
}

// serverClock represents the API server's clock, as its answers report it. Stored objects have
// the time of the API server, and the clock of the caller's machine may differ.
type serverClock struct {
	clock clock.PassiveClock
	// ahead is the time.Duration by which the API server's clock is ahead.
	ahead atomic.Int64
}

// Now returns the API server's time; the time of the caller before the first answer.
func (c *serverClock) Now() time.Time { return c.clock.Now().Add(time.Duration(c.ahead.Load())) }

// clockedTransport implements http.RoundTripper, and reads the clock of each answer.
type clockedTransport struct {
	http.RoundTripper
	clock *serverClock
}

// RoundTrip implements http.RoundTripper.
func (t *clockedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(req)
	if err != nil {
		return resp, err
	}
	if at, invalid := http.ParseTime(resp.Header.Get("Date")); invalid == nil {
		t.clock.ahead.Store(int64(at.Sub(t.clock.clock.Now())))
	}
	return resp, nil
}

// Confirmed asks on a terminal whether to go on. If there is no terminal, it requires --yes.
func (e *Env) Confirmed(ctx context.Context, yes bool, question string) error {
	if yes {
		return nil
	}
	file, isFile := e.In.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return Coded(ExitUsage, errors.New("there is no terminal to ask on: confirm with --yes"))
	}
	return ask(ctx, e.In, e.ErrOut, question)
}

// ask asks a question, to which only y and yes mean yes. It stops waiting for the answer when the
// context is done.
func ask(ctx context.Context, in io.Reader, out io.Writer, question string) error {
	fmt.Fprint(out, question+" [y/N] ")
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n') // the end of the input is a no
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(out)
	case text := <-answer:
		if text == "y" || text == "yes" {
			return nil
		}
	}
	return errors.New("not confirmed: nothing was done")
}
