package ui

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
)

// guard serves requests of the page alone, as far as it can recognize them.
//
// Another page of the same browser can send requests, without reading the answers: it cannot set
// the header with the token, nor can it, in a present browser, leave out its origin. If it has
// resolved a name to the loopback interface (DNS rebinding), that name is in the Host header.
type guard struct {
	// hosts are the allowed Host headers: the addresses of the listener.
	hosts []string
	// token is the digest of the token, because all digests have the same length.
	token [sha256.Size]byte
	next  http.Handler
}

func newGuard(hosts []string, token string, next http.Handler) *guard {
	return &guard{hosts: hosts, token: sha256.Sum256([]byte(token)), next: next}
}

// ServeHTTP implements http.Handler.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	protect(w.Header())
	if code, why := g.refuses(r); code != 0 {
		if code == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		refuse(w, code, command.ExitForbidden, why)
		return
	}
	g.next.ServeHTTP(w, r)
}

// refuses returns the code and the text with which a request is refused; 0: it is served.
func (g *guard) refuses(r *http.Request) (int, string) {
	if !slices.Contains(g.hosts, r.Host) {
		return http.StatusMisdirectedRequest, fmt.Sprintf("nothing is served under the name %q: open http://%s", r.Host, g.hosts[0])
	}
	if origins := r.Header.Values("Origin"); len(origins) > 1 || len(origins) == 1 && origins[0] != "http://"+r.Host {
		return http.StatusForbidden, fmt.Sprintf("requests of other pages are not answered (Origin: %s)", strings.Join(origins, ", "))
	}
	for _, site := range r.Header.Values("Sec-Fetch-Site") {
		if site != "same-origin" && site != "none" && !opensPage(r) {
			return http.StatusForbidden, fmt.Sprintf("requests of other pages are not answered (Sec-Fetch-Site: %s)", site)
		}
	}
	if isAPI(r.URL.Path) && !g.knows(r) {
		return http.StatusUnauthorized, "the token is missing or wrong: open the address that kubectl ipam ui has printed"
	}
	return 0, ""
}

// opensPage reports whether a request opens the page itself in a tab, as a file does that leads to
// it. The page holds no data of the cluster, and no token.
func opensPage(r *http.Request) bool {
	return r.Method == http.MethodGet && r.URL.Path == "/" &&
		slices.Equal(r.Header.Values("Sec-Fetch-Mode"), []string{"navigate"}) && slices.Equal(r.Header.Values("Sec-Fetch-Dest"), []string{"document"})
}

func isAPI(path string) bool { return path == "/api" || strings.HasPrefix(path, "/api/") }

// knows reports whether the request has the token.
func (g *guard) knows(r *http.Request) bool {
	given := r.Header.Values("Authorization")
	if len(given) != 1 {
		return false
	}
	token, found := strings.CutPrefix(given[0], "Bearer ")
	digest := sha256.Sum256([]byte(token))
	return found && subtle.ConstantTimeCompare(digest[:], g.token[:]) == 1
}

// policy lets the page load files of this server, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; " +
	"font-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// protect sets the headers that all answers have.
func protect(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}
