package ui

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/live"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/terminal"
	"github.com/cadastre-dev/cadastre/internal/version"
)

// NewUI returns the command ui.
func NewUI(e *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Show the address space in a browser, and follow its changes",
		Long: `Show the address space in a browser, and follow its changes. The command serves a page on
this machine alone, until it is ended with Ctrl-C. The page shows what you may read in the
cluster, by your own rights, and asks the same as kubectl ipam who, explain and free.

The address that is printed has a token, without which nothing is served: anyone with the address
can read what you can read, as long as the command runs and from this machine alone.

With --read-only=false claims can be made and released from the page, with your rights.`,
		Example: `  # Print an address to open in a browser
  kubectl ipam ui

  # Open it
  kubectl ipam ui --open`,
	}
	var port uint16
	var open, readOnly bool
	cmd.Flags().Uint16Var(&port, "port", 0, "port of the loopback interface to serve at; 0 is any that is free")
	cmd.Flags().BoolVar(&open, "open", false, "open the page in the browser")
	cmd.Flags().BoolVar(&readOnly, "read-only", true, "refuse to create and release claims from the page")
	command.CompleteWith(cmd, "port", cobra.NoFileCompletions)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return runUI(cmd.Context(), e, int(port), open, readOnly)
	}
	return cmd
}

// runUI serves the page until ctx is done.
func runUI(ctx context.Context, e *command.Env, port int, open, readOnly bool) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	options, err := uiOptions(e, readOnly)
	if err != nil {
		return err
	}
	listener, hosts, err := Listen(ctx, port)
	if err != nil {
		return fmt.Errorf("--port=%d: %w: choose another one, or leave it out", port, err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); options.Live.Run(ctx) }()
	defer func() { end(); <-ended }()
	if err := options.Live.Begun(ctx); err != nil {
		return closing(listener, err)
	}
	address := "http://" + hosts[0] + "/#token=" + options.Token
	fmt.Fprintf(e.Out, "Serving the address space at %s\n", address)
	fmt.Fprintln(e.Out, "press Ctrl-C to end")
	go noteUnread(ctx, e, options.Live)
	if open {
		remove, err := browse(ctx, address)
		defer remove()
		if err != nil {
			e.Note("the browser could not be opened: %v: open the address yourself", err)
		}
	}
	return Serve(ctx, listener, hosts, options)
}

// closing closes a listener that is not served, and returns the error to report; nil if the
// command was interrupted.
func closing(listener net.Listener, err error) error {
	_ = listener.Close() // nothing has been served
	switch {
	case errors.Is(err, context.Canceled):
		return nil
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: install Cadastre in this cluster, or choose another one with --context", err)
	default:
		return err
	}
}

// uiOptions returns the options of the server, with the caller's rights.
func uiOptions(e *command.Env, readOnly bool) (Options, error) {
	config, err := e.Config()
	if err != nil {
		return Options{}, err
	}
	config = rest.CopyConfig(config)
	config.Timeout = 0 // it would bound a single request, such as a watch
	c, err := e.Client()
	if err != nil {
		return Options{}, err
	}
	namespace, err := e.Namespace()
	if err != nil {
		return Options{}, err
	}
	sources, err := live.NewSources(config, c, command.Scheme())
	if err != nil {
		return Options{}, err
	}
	own := clock.RealClock{}
	return Options{
		Live: live.New(sources, namespace, own), Commands: &uiCommands{e, c},
		Hello: live.Hello{Version: version.Own(), Context: contextName(e), Namespace: namespace, ReadOnly: readOnly},
		Token: newToken(), Clock: own, Now: e.Server.Now,
	}, nil
}

// newToken returns a token that cannot be guessed.
func newToken() string {
	var bytes [24]byte
	_, _ = rand.Read(bytes[:]) // it never fails
	return base64.RawURLEncoding.EncodeToString(bytes[:])
}

// contextName returns the name of the kubeconfig's context.
func contextName(e *command.Env) string {
	if name := *e.Flags.Context; name != "" {
		return name
	}
	raw, err := e.Flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil { // there is no kubeconfig, as in a pod
		return ""
	}
	return raw.CurrentContext
}

// noteUnread notes the objects that the caller cannot read, as soon as they are known.
func noteUnread(ctx context.Context, e *command.Env, from *live.Live) {
	select {
	case <-ctx.Done():
	case <-from.AllRead():
		if text := from.Unread().Text; text != "" {
			e.Note("%s", terminal.Printable(text))
		}
	}
}

// browse opens an address in the browser of the caller. All users of a machine can read the
// command lines of its programs, and the address has a token, so the browser gets a file that
// leads to the address and that the caller alone can read; remove deletes it.
func browse(ctx context.Context, address string) (remove func(), err error) {
	file, remove, err := redirection(address)
	if err != nil {
		return remove, err
	}
	line := []string{"xdg-open", file}
	switch runtime.GOOS {
	case "darwin":
		line[0] = "open"
	case "windows":
		line = []string{"rundll32", "url.dll,FileProtocolHandler", file}
	}
	opening := exec.CommandContext(ctx, line[0], line[1:]...) //nolint:gosec // the file is our own
	if err := opening.Start(); err != nil {
		return remove, err
	}
	go func() { _ = opening.Wait() }() // a browser that it has started can stay
	return remove, nil
}

// redirection writes a page that leads to an address, into a new directory.
func redirection(address string) (file string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "kubectl-ipam-ui-") // of mode 0700
	if err != nil {
		return "", func() {}, err
	}
	remove = func() { _ = os.RemoveAll(dir) } // the token is worthless at that time
	file = filepath.Join(dir, "open.html")
	page := fmt.Sprintf("<!doctype html><meta charset=utf-8><title>kubectl ipam ui</title><meta http-equiv=refresh content=\"0; url=%s\">\n", html.EscapeString(address))
	return file, remove, os.WriteFile(file, []byte(page), 0o600)
}
