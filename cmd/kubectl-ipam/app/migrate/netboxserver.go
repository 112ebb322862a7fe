package migrate

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NetBoxServer represents a NetBox whose REST API is read.
type NetBoxServer struct {
	// URL holds the URL of its page, with https, or with http on the own machine.
	URL string
	// Token authenticates the requests; empty if NetBox asks for none.
	Token string
}

// NetBoxFrom imports like NetBox, from the answers of a REST API.
func NetBoxFrom(ctx context.Context, c client.Client, o Options, s NetBoxServer) error {
	r, err := newNetBoxReader(s, o.withDefaults().Clock)
	if err != nil {
		return err
	}
	pages, err := r.read(ctx)
	if err != nil {
		return err
	}
	objects, err := objectsOf(pages)
	if err != nil {
		return err
	}
	return registerOf(objects, o).run(ctx, c, o)
}

// These limits bound the data that is read from a NetBox.
const (
	// pageLength limits the objects of one request; NetBox answers with MAX_PAGE_SIZE, 1,000 by
	// default, if that is less.
	pageLength = 1000
	// pageBytes and allBytes bound one page and all of them.
	pageBytes, allBytes = 64 << 20, 1 << 30
	// answerWithin bounds one request, and readWithin all of them.
	answerWithin, readWithin = 2 * time.Minute, 30 * time.Minute
	// netBoxTries bounds the tries of a request that fails for a time. The pause is retryAfter
	// at first, and then twice as long after each try, up to retryWithin.
	netBoxTries, retryAfter, retryWithin = 6, time.Second, time.Minute
)

// netBoxReader reads pages, one after the other.
type netBoxReader struct {
	base  *url.URL
	token string
	http  *http.Client
	clock clock.Clock
	bytes int
}

func newNetBoxReader(s NetBoxServer, c clock.Clock) (*netBoxReader, error) {
	base, err := url.Parse(s.URL)
	switch {
	case strings.Contains(s.URL, "@"):
		return nil, errors.New("--url: it has a user name: leave that out, and name a file with a token by --token-file")
	case err != nil || base.Host == "":
		return nil, fmt.Errorf("--url: %q is not the URL of a NetBox: write one such as https://netbox.example.com", s.URL)
	case base.Scheme != "https" && (base.Scheme != "http" || !isLoopback(base.Hostname())):
		return nil, fmt.Errorf("--url: %q would have the token sent in the clear: write an URL with https, or forward a local port to it", s.URL)
	}
	base = base.JoinPath("/") // and so without a query
	base.RawQuery, base.Path = "", strings.TrimSuffix(strings.TrimSuffix(base.Path, "/"), "/api")
	r := &netBoxReader{base: base, token: strings.TrimSpace(s.Token), clock: c}
	r.http = &http.Client{Timeout: answerWithin, CheckRedirect: func(req *http.Request, via []*http.Request) error {
		if req.URL.Hostname() != base.Hostname() || req.URL.Scheme != base.Scheme || len(via) > 3 {
			return &elsewhereError{req.URL.Hostname()}
		}
		return nil
	}}
	return r, nil
}

// elsewhereError means that NetBox names another host to read from, which must not get the token.
type elsewhereError struct{ host string }

// Error implements error.
func (e *elsewhereError) Error() string {
	return fmt.Sprintf("NetBox refers to %s, which is not the host of --url, or not by https: name that in --url if it is right, or correct the proxy before NetBox", e.host)
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// read reads all pages of all endpoints.
func (r *netBoxReader) read(ctx context.Context) ([]page, error) {
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	var all []page
	for _, name := range []string{"prefixes", "ip-addresses", "ip-ranges"} {
		pages, err := r.readEndpoint(ctx, r.base.JoinPath("api", "ipam", name, "/"))
		if err != nil {
			return nil, fmt.Errorf("reading %s of NetBox: %w", name, err)
		}
		all = append(all, pages...)
	}
	return all, nil
}

// readEndpoint reads all pages: each page names the URL of the next one. Of that URL only the
// query counts, as a proxy may have another scheme, port or path than NetBox sees.
func (r *netBoxReader) readEndpoint(ctx context.Context, at *url.URL) ([]page, error) {
	at.RawQuery = fmt.Sprintf("limit=%d", pageLength)
	var pages []page
	for {
		p, err := r.retried(ctx, at)
		if err != nil {
			return nil, err
		}
		pages = append(pages, p)
		if p.Next == "" {
			return pages, nil
		}
		next, err := url.Parse(p.Next)
		switch {
		case err != nil:
			return nil, fmt.Errorf("the URL of the next page is invalid: %w", err)
		case next.Hostname() != r.base.Hostname():
			return nil, &elsewhereError{next.Hostname()}
		case next.RawQuery == at.RawQuery || len(p.Results) == 0:
			return nil, errors.New("a page is its own next one: correct the proxy before NetBox, which must pass on the query")
		}
		at.RawQuery = next.RawQuery
	}
}

// retried reads a page, and tries again if that fails for a time.
func (r *netBoxReader) retried(ctx context.Context, at *url.URL) (page, error) {
	pause := retryAfter
	for try := 1; ; try++ {
		p, err := r.readPage(ctx, at)
		passing, ok := errors.AsType[*passingError](err)
		if !ok || try == netBoxTries || ctx.Err() != nil {
			return p, err
		}
		if err := waitFor(ctx, r.clock, min(max(pause, passing.after), retryWithin)); err != nil {
			return page{}, err
		}
		pause *= 2
	}
}

// passingError represents a failure that may pass, and the earliest time to try again, if stated.
type passingError struct {
	error
	after time.Duration
}

// Unwrap returns the failure.
func (e *passingError) Unwrap() error { return e.error }

func (r *netBoxReader) readPage(ctx context.Context, at *url.URL) (page, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return page{}, err
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "kubectl-ipam")
	if r.token != "" {
		request.Header.Set("Authorization", authorization(r.token))
	}
	response, err := r.http.Do(request)
	if err != nil {
		return page{}, unlessLasting(err)
	}
	defer func() { _ = response.Body.Close() }() // it was only read
	if err := refusalOf(response); err != nil {
		return page{}, err
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, pageBytes+1))
	if err != nil {
		return page{}, unlessLasting(err)
	}
	if r.bytes += len(text); len(text) > pageBytes || r.bytes > allBytes {
		return page{}, fmt.Errorf("NetBox answers with more than %d MiB in a page, or %d MiB in all: export the objects to import, by filters, into files", pageBytes>>20, allBytes>>20)
	}
	var p page
	if err := json.Unmarshal(text, &p); err != nil {
		return page{}, fmt.Errorf("the answer is not JSON as NetBox's REST API gives it: check that --url is the address of NetBox: %w", err)
	}
	return p, nil
}

// authorization returns the header for a token: since NetBox 4.5 they begin with nbt_.
func authorization(token string) string {
	if strings.HasPrefix(token, "nbt_") {
		return "Bearer " + token
	}
	return "Token " + token
}

// refusalOf returns the reason why an answer has no page, or nil.
func refusalOf(response *http.Response) error {
	switch code := response.StatusCode; {
	case code == http.StatusOK:
		return nil
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return fmt.Errorf("NetBox answers %s: give it a token that may view prefixes, IP addresses and IP ranges, by NETBOX_TOKEN or --token-file", response.Status)
	case code == http.StatusTooManyRequests || code >= http.StatusInternalServerError:
		seconds, _ := strconv.Atoi(response.Header.Get("Retry-After")) // 0 if there is none
		return &passingError{fmt.Errorf("NetBox answers %s: try again later", response.Status), time.Duration(seconds) * time.Second}
	default:
		return fmt.Errorf("NetBox answers %s: check that --url is the address of NetBox", response.Status)
	}
}

// unlessLasting marks a failure as one that may pass, unless the same request must fail again.
func unlessLasting(err error) error {
	_, isCertificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, isElsewhere := errors.AsType[*elsewhereError](err)
	dns, isName := errors.AsType[*net.DNSError](err)
	if isCertificate || isElsewhere || isName && dns.IsNotFound || errors.Is(err, context.Canceled) {
		return err
	}
	return &passingError{error: err}
}
