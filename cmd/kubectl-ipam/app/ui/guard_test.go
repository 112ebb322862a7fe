package ui

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const token = "a-token-of-this-test"

// asked returns a request as a page sends it, changed in one way.
func asked(method, path string, change func(*http.Request)) *http.Request {
	r := httptest.NewRequest(method, "http://127.0.0.1:8080"+path, nil)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if change != nil {
		change(r)
	}
	return r
}

func header(name string, values ...string) func(*http.Request) {
	return func(r *http.Request) {
		r.Header.Del(name)
		for _, value := range values {
			r.Header.Add(name, value)
		}
	}
}

// leadsTo returns a change by which a page of another site, or a file, leads there.
func leadsTo(where string) func(*http.Request) {
	return func(r *http.Request) {
		r.Method = http.MethodGet
		for name, value := range map[string]string{"Site": "cross-site", "Mode": "navigate", "Dest": where} {
			r.Header.Set("Sec-Fetch-"+name, value)
		}
	}
}

func host(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }

// TestGuardRejectsForeignRequests sends every kind of request that is refused, and those beside them
// that are served.
func TestGuardRejectsForeignRequests(t *testing.T) {
	for name, tc := range map[string]struct {
		path   string
		change func(*http.Request)
		want   int
	}{
		"the page itself":                          {"/api/who", nil, http.StatusOK},
		"by another name of this machine":          {"/api/who", host("localhost:8080"), http.StatusOK},
		"with its own origin":                      {"/api/claims", header("Origin", "http://127.0.0.1:8080"), http.StatusOK},
		"an address that a person has typed":       {"/", header("Sec-Fetch-Site", "none"), http.StatusOK},
		"a browser that sends no origin":           {"/api/who", header("Sec-Fetch-Site"), http.StatusOK},
		"a file without a token":                   {"/style.css", header("Authorization"), http.StatusOK},
		"a name that was resolved to this machine": {"/", host("evil.example:8080"), http.StatusMisdirectedRequest},
		"such a name with a token":                 {"/api/who", host("evil.example:8080"), http.StatusMisdirectedRequest},
		"another port":                             {"/api/who", host("127.0.0.1:8081"), http.StatusMisdirectedRequest},
		"no port":                                  {"/api/who", host("127.0.0.1"), http.StatusMisdirectedRequest},
		"no name":                                  {"/api/who", host(""), http.StatusMisdirectedRequest},
		"a name with a dot behind it":              {"/api/who", host("localhost.:8080"), http.StatusMisdirectedRequest},
		"IPv6 where it is not listened at":         {"/api/who", host("[::1]:8080"), http.StatusMisdirectedRequest},
		"another origin":                           {"/api/who", header("Origin", "https://evil.example"), http.StatusForbidden},
		"another origin, for a file":               {"/", header("Origin", "https://evil.example"), http.StatusForbidden},
		"an origin that is hidden":                 {"/api/who", header("Origin", "null"), http.StatusForbidden},
		"an origin that is empty":                  {"/api/who", header("Origin", ""), http.StatusForbidden},
		"an origin of another port":                {"/api/who", header("Origin", "http://127.0.0.1:3000"), http.StatusForbidden},
		"an origin of another scheme":              {"/api/who", header("Origin", "https://127.0.0.1:8080"), http.StatusForbidden},
		"an origin of another name":                {"/api/who", header("Origin", "http://localhost:8080"), http.StatusForbidden},
		"two origins":                              {"/api/who", header("Origin", "http://127.0.0.1:8080", "http://127.0.0.1:8080"), http.StatusForbidden},
		"another site":                             {"/api/who", header("Sec-Fetch-Site", "cross-site"), http.StatusForbidden},
		"another site, for a file":                 {"/", header("Sec-Fetch-Site", "cross-site"), http.StatusForbidden},
		"a file that leads to the page":            {"/", leadsTo("document"), http.StatusOK},
		"a file that leads to data":                {"/api/who", leadsTo("document"), http.StatusForbidden},
		"a file that leads to a part of the page":  {"/main.js", leadsTo("document"), http.StatusForbidden},
		"another site that frames the page":        {"/", leadsTo("iframe"), http.StatusForbidden},
		"another port of this machine":             {"/api/who", header("Sec-Fetch-Site", "same-site"), http.StatusForbidden},
		"one site, and then another":               {"/api/who", header("Sec-Fetch-Site", "same-origin", "cross-site"), http.StatusForbidden},
		"no token":                                 {"/api/who", header("Authorization"), http.StatusUnauthorized},
		"no token, where nothing is":               {"/api", header("Authorization"), http.StatusUnauthorized},
		"no token, by a detour":                    {"/api/../api/who", header("Authorization"), http.StatusUnauthorized},
		"another token":                            {"/api/who", header("Authorization", "Bearer another-token-of-it"), http.StatusUnauthorized},
		"a part of the token":                      {"/api/who", header("Authorization", "Bearer "+token[:5]), http.StatusUnauthorized},
		"the token and more":                       {"/api/who", header("Authorization", "Bearer "+token+"x"), http.StatusUnauthorized},
		"an empty token":                           {"/api/who", header("Authorization", "Bearer "), http.StatusUnauthorized},
		"the token without its kind":               {"/api/who", header("Authorization", token), http.StatusUnauthorized},
		"the token of another kind":                {"/api/who", header("Authorization", "Basic "+token), http.StatusUnauthorized},
		"the token twice":                          {"/api/who", header("Authorization", "Bearer "+token, "Bearer "+token), http.StatusUnauthorized},
		"the token beside another":                 {"/api/who", header("Authorization", "Bearer x", "Bearer "+token), http.StatusUnauthorized},
		"the token in the address":                 {"/api/who?token=" + token + "&access_token=" + token, header("Authorization"), http.StatusUnauthorized},
		"the token in a cookie": {"/api/who", func(r *http.Request) {
			header("Authorization")(r)
			r.AddCookie(&http.Cookie{Name: "token", Value: token})
		}, http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			served := false
			guard := newGuard([]string{"127.0.0.1:8080", "localhost:8080"}, token, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = true }))
			answered := httptest.NewRecorder()
			guard.ServeHTTP(answered, asked(http.MethodGet, tc.path, tc.change))
			if answered.Code != tc.want || served != (tc.want == http.StatusOK) {
				t.Errorf("%d, served: %t; want %d\n%s", answered.Code, served, tc.want, answered.Body)
			}
			for _, name := range []string{"Content-Security-Policy", "X-Content-Type-Options", "Referrer-Policy", "Cross-Origin-Resource-Policy", "Cross-Origin-Opener-Policy", "Cache-Control"} {
				if answered.Header().Get(name) == "" {
					t.Errorf("the answer has no %s", name)
				}
			}
			for name := range answered.Header() {
				if strings.HasPrefix(name, "Access-Control-") {
					t.Errorf("the answer has %s: another page may read it", name)
				}
			}
			if !served && !strings.Contains(answered.Body.String(), `"message"`) {
				t.Errorf("the answer states no reason: %s", answered.Body)
			}
			if strings.Contains(answered.Body.String(), token) {
				t.Errorf("the answer contains the token: %s", answered.Body)
			}
		})
	}
}
