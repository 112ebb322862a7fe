package migrate

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

// fakeNetBox answers requests on the loopback interface.
type fakeNetBox struct {
	*httptest.Server
	// asked counts the requests, and answers replaces the answer to one of them.
	asked   atomic.Int64
	answers func(n int64, w http.ResponseWriter, r *http.Request) bool
}

const fakeToken = "0123456789abcdef"

// newFakeNetBox returns one with 25 prefixes in pages of 10, and one address in one of them.
func newFakeNetBox(t *testing.T) *fakeNetBox {
	f := &fakeNetBox{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := f.asked.Add(1)
		if f.answers != nil && f.answers(n, w, r) {
			return
		}
		if r.Header.Get("Authorization") != "Token "+fakeToken {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		switch r.URL.Path {
		case "/netbox/api/ipam/prefixes/":
			offset := 0
			_, _ = fmt.Sscan(r.URL.Query().Get("offset"), &offset)
			// As behind a proxy that ends TLS, and serves NetBox below another path.
			fmt.Fprint(w, strings.ReplaceAll(pageOf(offset, 10, 25), "https://netbox.example.com", "http://127.0.0.1"))
		case "/netbox/api/ipam/ip-addresses/":
			fmt.Fprint(w, `{"count": 1, "next": null, "results": [{"id": 1, "address": "10.0.20.7/24", "status": {"value": "active"}}]}`)
		default:
			fmt.Fprint(w, `{"count": 0, "next": null, "results": []}`)
		}
	}))
	t.Cleanup(f.Close)
	return f
}

// imported returns the output of an import of the server, and its error. The clock advances by
// itself.
func (f *fakeNetBox) imported(t *testing.T, token string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := NetBoxFrom(t.Context(), clusterWith(""), Options{Namespace: "dc", Out: &out, Clock: &hurriedClock{FakeClock: testingclock.NewFakeClock(time.Now())}}, NetBoxServer{URL: f.URL + "/netbox/", Token: token})
	if strings.Contains(out.String(), fakeToken) || err != nil && strings.Contains(err.Error(), fakeToken) {
		t.Errorf("the token is printed: %s %v", out.String(), err)
	}
	return out.String(), err
}

// hurriedClock implements a clock whose timers fire at once.
type hurriedClock struct {
	*testingclock.FakeClock
	waited []time.Duration
}

func (c *hurriedClock) After(d time.Duration) <-chan time.Time {
	c.waited = append(c.waited, d)
	c.Step(d)
	now := make(chan time.Time, 1)
	now <- c.Now()
	return now
}

func TestNetBoxIsReadPageByPage(t *testing.T) {
	f := newFakeNetBox(t)
	out, err := f.imported(t, fakeToken+"\n")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out, "IPPool net-"); n != 25 || !strings.Contains(out, "1 held block") {
		t.Errorf("got %d pools, want 25 and a held block:\n%s", n, out)
	}
	if n := f.asked.Load(); n != 5 {
		t.Errorf("it was asked %d times, want 3 for prefixes, 1 for addresses and 1 for ranges", n)
	}
}

func TestNetBoxRequestIsRetriedAfterTransientError(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter){
		"429": func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
		},
		"503":              func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) },
		"a lost answer":    func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		"half of a answer": func(w http.ResponseWriter) { w.Header().Set("Content-Length", "1000"); fmt.Fprint(w, "{") },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeNetBox(t)
			f.answers = func(n int64, w http.ResponseWriter, _ *http.Request) bool {
				if n%2 == 0 {
					answer(w)
				}
				return n%2 == 0
			}
			if out, err := f.imported(t, fakeToken); err != nil || strings.Count(out, "IPPool net-") != 25 {
				t.Errorf("got %v\n%s", err, out)
			}
		})
	}
}

func TestNetBoxPermanentErrorIsReturned(t *testing.T) {
	for name, test := range map[string]struct {
		token  string
		answer func(w http.ResponseWriter, r *http.Request)
		asked  int64
		want   string
	}{
		"a server that stays busy": {
			token: fakeToken, asked: netBoxTries, want: "reading prefixes of NetBox: NetBox answers 503 Service Unavailable: try again later",
			answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		},
		"another token": {
			token: "other", asked: 1, want: "reading prefixes of NetBox: NetBox answers 403 Forbidden: give it a token that may view prefixes, IP addresses and IP ranges, by NETBOX_TOKEN or --token-file",
		},
		"a next page on another host": {
			token: fakeToken, asked: 1, want: "reading prefixes of NetBox: NetBox refers to elsewhere.example.com, which is not the host of --url, or not by https: name that in --url if it is right, or correct the proxy before NetBox",
			answer: func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprint(w, `{"count": 9, "next": "http://elsewhere.example.com/api/ipam/prefixes/?offset=1", "results": [{"id": 1, "prefix": "10.0.0.0/24"}]}`)
			},
		},
		"a page that is its own next one": {
			token: fakeToken, asked: 1, want: "reading prefixes of NetBox: a page is its own next one: correct the proxy before NetBox, which must pass on the query",
			answer: func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprintf(w, `{"count": 9, "next": "http://127.0.0.1%s", "results": [{"id": 1, "prefix": "10.0.0.0/24"}]}`, r.URL)
			},
		},
		"another page": {
			token: fakeToken, asked: 1, want: "reading prefixes of NetBox: the answer is not JSON as NetBox's REST API gives it: check that --url is the address of NetBox: invalid character '<' looking for beginning of value",
			answer: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
		},
		"no NetBox": {
			token: fakeToken, asked: 1, want: "reading prefixes of NetBox: NetBox answers 404 Not Found: check that --url is the address of NetBox",
			answer: http.NotFound,
		},
		"an answer without end": {
			token: fakeToken, asked: 1, want: "reading prefixes of NetBox: NetBox answers with more than 64 MiB in a page, or 1024 MiB in all: export the objects to import, by filters, into files",
			answer: func(w http.ResponseWriter, _ *http.Request) {
				for block := bytes.Repeat([]byte(" "), 1<<20); ; {
					if _, err := w.Write(block); err != nil {
						return
					}
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeNetBox(t)
			if test.answer != nil {
				f.answers = func(_ int64, w http.ResponseWriter, r *http.Request) bool { test.answer(w, r); return true }
			}
			if _, err := f.imported(t, test.token); err == nil || err.Error() != test.want {
				t.Errorf("got %v, want %s", err, test.want)
			}
			if n := f.asked.Load(); n != test.asked {
				t.Errorf("it was asked %d times, want %d", n, test.asked)
			}
		})
	}
}

// TestNetBoxTokenIsNotSentToOtherHost redirects to another server, which gets no request.
func TestNetBoxTokenIsNotSentToOtherHost(t *testing.T) {
	other := newFakeNetBox(t)
	f := newFakeNetBox(t)
	f.answers = func(_ int64, w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, strings.Replace(other.URL, "127.0.0.1", "localhost", 1)+r.URL.Path, http.StatusFound)
		return true
	}
	if _, err := f.imported(t, fakeToken); err == nil || !strings.Contains(err.Error(), "NetBox refers to localhost") {
		t.Errorf("got %v", err)
	}
	if n := other.asked.Load(); n != 0 {
		t.Errorf("the other server was asked %d times", n)
	}
}

func TestNetBoxRetriesBackOff(t *testing.T) {
	clock := &hurriedClock{FakeClock: testingclock.NewFakeClock(time.Now())}
	f := newFakeNetBox(t)
	f.answers = func(n int64, w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Retry-After", []string{"", "", "7", "", "9999"}[n%5])
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	}
	r, err := newNetBoxReader(NetBoxServer{URL: f.URL}, clock)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = r.read(t.Context()) // it fails in the end
	want := []time.Duration{time.Second, 7 * time.Second, 4 * time.Second, time.Minute, 16 * time.Second}
	if fmt.Sprint(clock.waited) != fmt.Sprint(want) {
		t.Errorf("waited %v, want %v", clock.waited, want)
	}
}

func TestNetBoxURLsAreValidated(t *testing.T) {
	for text, want := range map[string]string{
		"https://netbox.example.com":             "https://netbox.example.com",
		"https://netbox.example.com:8443/":       "https://netbox.example.com:8443",
		"https://example.com/netbox/api/?a=b":    "https://example.com/netbox",
		"http://localhost:8000":                  "http://localhost:8000",
		"http://[::1]:8000":                      "http://[::1]:8000",
		"netbox.example.com":                     `--url: "netbox.example.com" is not the URL of a NetBox: write one such as https://netbox.example.com`,
		"http://netbox.example.com":              `--url: "http://netbox.example.com" would have the token sent in the clear: write an URL with https, or forward a local port to it`,
		"https://me:secret@netbox.example.com":   "--url: it has a user name: leave that out, and name a file with a token by --token-file",
		"ftp://localhost/netbox":                 `--url: "ftp://localhost/netbox" would have the token sent in the clear: write an URL with https, or forward a local port to it`,
		"https://netbox.example.com/api/ipam/%z": `--url: "https://netbox.example.com/api/ipam/%z" is not the URL of a NetBox: write one such as https://netbox.example.com`,
	} {
		r, err := newNetBoxReader(NetBoxServer{URL: text}, nil)
		got := fmt.Sprint(err)
		if err == nil {
			got = r.base.String()
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
	for token, want := range map[string]string{"abc": "Token abc", "nbt_abc.def": "Bearer nbt_abc.def"} {
		if got := authorization(token); got != want {
			t.Errorf("%s: got %s, want %s", token, got, want)
		}
	}
}
