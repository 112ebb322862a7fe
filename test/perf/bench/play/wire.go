package play

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/google/uuid"
	"k8s.io/client-go/rest"
)

// wire holds a separate connection to the API server, as every client has one. It
// sends and receives JSON as it is, so that the clients' own work, which is done
// on the same machine, stays small and the same for all kinds.
type wire struct {
	host string
	http *http.Client
	// traced makes each request begin a trace, which is to be recorded.
	traced bool
}

func newWire(config *rest.Config) (*wire, error) {
	// Clients with the same configuration share connections; a separate dialer
	// prevents that.
	config.Dial = (&net.Dialer{}).DialContext
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return &wire{host: strings.TrimSuffix(config.Host, "/"), http: client}, nil
}

// do sends a request and returns the answer, of which a status other than 2xx is
// an error.
func (w *wire) do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	response, err := w.open(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode/100 != 2 {
		return answer, &statusError{response.StatusCode, answer}
	}
	return answer, nil
}

// send sends an object, and discards the answer.
func (w *wire) send(ctx context.Context, method, path string, object any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	_, err = w.do(ctx, method, path, body)
	return err
}

func (w *wire) open(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, w.host+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	if w.traced {
		id := uuid.New()
		request.Header.Set("Traceparent", fmt.Sprintf("00-%x-%x-01", id[:], id[:8]))
	}
	return w.http.Do(request)
}

// statusError represents an answer that is not 2xx.
type statusError struct {
	code   int
	answer []byte
}

func (e *statusError) Error() string {
	return fmt.Sprintf("HTTP %d: %s", e.code, bytes.TrimSpace(e.answer[:min(len(e.answer), 300)]))
}
