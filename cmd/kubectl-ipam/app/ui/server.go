package ui

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/utils/clock"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/live"
	"github.com/cadastre-dev/cadastre/web"
)

// Options holds the data and the commands of a server.
type Options struct {
	// Live must be running.
	Live *live.Live
	// Commands answer questions, and write.
	Commands Commands
	// Hello is the first message of a stream, except for its time.
	Hello live.Hello
	// Token is the token that requests must have.
	Token string
	Clock clock.WithTicker
	// Now is the time of the API server, by which objects are stamped.
	Now func() time.Time

	// takeWithin is the time in which a client must take a batch of messages, before it is cut
	// off; 0: takeWithin of the package.
	takeWithin time.Duration
}

const (
	// mostStreams bounds the number of streams at a time.
	mostStreams = 32
	// headerWithin and bodyWithin bound the time in which a request must arrive, and answerWithin
	// the time in which its answer must be taken.
	headerWithin = 5 * time.Second
	bodyWithin   = 15 * time.Second
	answerWithin = time.Minute
	// idleFor is the time that a connection without a request is kept.
	idleFor = 2 * time.Minute
	// mostHeader and mostBody bound the sizes of requests, in bytes.
	mostHeader = 16 << 10
	mostBody   = 64 << 10
	// endWithin is the time that requests can go on after the server begins to end.
	endWithin = 3 * time.Second
)

// server serves one command.
type server struct {
	Options
	streams *semaphore.Weighted
}

// Listen listens on the loopback interface alone: at a port, or at any free port for 0. It returns
// the addresses that a browser can use, in the form of Host headers.
func Listen(ctx context.Context, port int) (net.Listener, []string, error) {
	host := "127.0.0.1"
	listener, err := listen(ctx, host, port)
	if err != nil && !hasIPv4(ctx) {
		host = "::1"
		listener, err = listen(ctx, host, port)
	}
	if err != nil {
		return nil, nil, err
	}
	_, at, err := net.SplitHostPort(listener.Addr().String())
	return listener, []string{net.JoinHostPort(host, at), net.JoinHostPort("localhost", at)}, err
}

func listen(ctx context.Context, host string, port int) (net.Listener, error) {
	var config net.ListenConfig
	return config.Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
}

// hasIPv4 reports whether the loopback interface has an IPv4 address.
func hasIPv4(ctx context.Context) bool {
	listener, err := listen(ctx, "127.0.0.1", 0)
	return err == nil && listener.Close() == nil
}

// Serve serves until ctx is done.
func Serve(ctx context.Context, listener net.Listener, hosts []string, options Options) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	serving := &http.Server{
		Handler: newHandler(hosts, options), ReadHeaderTimeout: headerWithin, ReadTimeout: bodyWithin, WriteTimeout: answerWithin,
		IdleTimeout: idleFor, MaxHeaderBytes: mostHeader,
		BaseContext: func(net.Listener) context.Context { return ctx }, // ends streams
		ErrorLog:    log.New(io.Discard, "", 0),                        // about clients that go away
	}
	failed := make(chan error, 1)
	go func() { failed <- serving.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer cancel()
	if err := serving.Shutdown(ending); err != nil {
		return serving.Close()
	}
	return nil
}

// newHandler returns the handler of all requests.
func newHandler(hosts []string, options Options) http.Handler {
	options.takeWithin = cmp.Or(options.takeWithin, takeWithin)
	s := &server{Options: options, streams: semaphore.NewWeighted(mostStreams)}
	mux := http.NewServeMux()
	mux.Handle("/", &page{web.Files})
	mux.HandleFunc("GET /api/stream", s.stream)
	for path, ask := range s.askable() {
		mux.HandleFunc("GET "+path, s.question(ask))
	}
	mux.HandleFunc("POST /api/claims", s.write(s.create))
	mux.HandleFunc("DELETE /api/claims", s.write(s.release))
	mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusNotFound, command.ExitNotFound, fmt.Sprintf("there is no %s %s", r.Method, r.URL.Path))
	})
	return newGuard(hosts, options.Token, mux)
}

// Failure holds the answer to a failed request.
type Failure struct {
	Message string `json:"message"`
	// ExitCode is the exit code of the command for the question.
	ExitCode command.ExitCode `json:"exitCode"`
}

// refuse answers with a failure.
func refuse(w http.ResponseWriter, status int, code command.ExitCode, message string) {
	answer(w, status, &Failure{Message: message, ExitCode: code})
}

// answer writes a value as JSON.
func answer(w http.ResponseWriter, code int, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		code, text = http.StatusInternalServerError, []byte(`{"message":"the answer cannot be written as JSON","exitCode":1}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(text, '\n')) // an error means that the client is gone
}

// page serves the files of the page, and the modules of the map in map/. They are the same for all
// users.
type page struct{ files fs.FS }

// contentType returns the content type of a file of the page, independent of the tables of the system.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	default:
		return "application/octet-stream"
	}
}

// ServeHTTP implements http.Handler.
func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, command.ExitUsage, r.Method+" is not for files of the page: GET them")
		return
	}
	name := strings.TrimPrefix(r.URL.Path, "/")
	if name == "" {
		name = "index.html"
	}
	if !strings.HasPrefix(name, "map/") {
		name = "page/" + name
	}
	content, err := fs.ReadFile(p.files, name) // no name of an fs.FS leads out of it
	if err != nil {
		refuse(w, http.StatusNotFound, command.ExitNotFound, "there is no file of that name")
		return
	}
	w.Header().Set("Content-Type", contentType(name))
	_, _ = w.Write(content) //nolint:gosec // a file of ours, and an error means that the client is gone
}
