package ui

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

func TestQuestionsAndWritesAreAnswered(t *testing.T) {
	writes := func(o *Options) { o.Hello.ReadOnly = false }
	l := filled(t).live()
	reads, all := serve(t, l), serve(t, l, writes)
	const claim = `{"namespace":"team","name":"new","pool":"IPPool/west","length":24}`
	for name, tc := range map[string]struct {
		site         *site
		method, path string
		body         string
		code         int
		answer       string
	}{
		"who":                              {reads, "GET", "/api/who?address=10.1.0.1", "", 200, `{"pools":4,"who":"10.1.0.1"}`},
		"who, without an address":          {reads, "GET", "/api/who", "", 400, "address is needed"},
		"who, which fails":                 {reads, "GET", "/api/who?address=fails", "", 403, `{"message":"of the command","exitCode":7}`},
		"who, by another method":           {reads, "POST", "/api/who?address=10.1.0.1", "", 404, "there is no POST /api/who"},
		"explain":                          {reads, "GET", "/api/explain?kind=ipclaim&namespace=team&name=web", "", 200, `{"Kind":"ipclaim","Namespace":"team","Name":"web"}`},
		"explain, without a namespace":     {reads, "GET", "/api/explain?kind=ipclaim&name=web", "", 400, "kind, namespace and name"},
		"free":                             {reads, "GET", "/api/free?pool=IPPool/west&length=24&count=5", "", 200, `"Length":24,"Count":5`},
		"free, of any length":              {reads, "GET", "/api/free?pool=LocalIPPool/team/own", "", 200, `"Length":-1,"Count":1`},
		"free, of an in-cluster pool":      {reads, "GET", "/api/free?pool=InClusterIPPool/team/nodes", "", 200, `"Kind":"InClusterIPPool","Namespace":"team","Name":"nodes"`},
		"free, of a global one":            {reads, "GET", "/api/free?pool=GlobalInClusterIPPool/nodes", "", 200, `"Kind":"GlobalInClusterIPPool","Namespace":"","Name":"nodes"`},
		"free, of no in-cluster pool":      {reads, "GET", "/api/free?pool=InClusterIPPool/nodes", "", 400, "is not the ID of a pool"},
		"free, of no pool":                 {reads, "GET", "/api/free?pool=west", "", 400, "is not the ID of a pool"},
		"free, of no pool of a namespace":  {reads, "GET", "/api/free?pool=LocalIPPool/own", "", 400, "is not the ID of a pool"},
		"free, too many":                   {reads, "GET", "/api/free?pool=IPPool/west&count=1001", "", 400, "must be 1 to 1000"},
		"free, of no length":               {reads, "GET", "/api/free?pool=IPPool/west&length=129", "", 400, "is not a prefix length"},
		"machine":                          {reads, "GET", "/api/machine?name=m-0", "", 200, `"m-0"`},
		"a claim, read-only":               {reads, "POST", "/api/claims", claim, 403, "--read-only=false"},
		"a release, read-only":             {reads, "DELETE", "/api/claims?namespace=team&name=web&uid=1", "", 403, "--read-only=false"},
		"a claim":                          {all, "POST", "/api/claims", claim, 200, `"pool":"IPPool/west"`},
		"a claim of no pool":               {all, "POST", "/api/claims", `{"namespace":"team","pool":"west"}`, 400, "is not the ID of a pool"},
		"a claim of no namespace":          {all, "POST", "/api/claims", `{"name":"new"}`, 400, "namespace is needed"},
		"a claim with a field that is not": {all, "POST", "/api/claims", `{"namespace":"team","size":24}`, 400, `unknown field \"size\"`},
		"a claim that is too long":         {all, "POST", "/api/claims", `{"namespace":"` + strings.Repeat("x", mostBody) + `"}`, 400, "too large"},
		"a release":                        {all, "DELETE", "/api/claims?namespace=team&name=web&uid=1", "", 200, `["team","web","1"]`},
		"a release of any UID":             {all, "DELETE", "/api/claims?namespace=team&name=web", "", 400, "uid of the claim"},
		"an unknown question":              {reads, "GET", "/api/nothing", "", 404, "there is no GET /api/nothing"},
		"the page":                         {reads, "GET", "/", "", 200, "<!doctype html>"},
	} {
		t.Run(name, func(t *testing.T) {
			var body io.Reader
			if tc.body != "" {
				body = strings.NewReader(tc.body)
			}
			answered := tc.site.request(tc.method, tc.path, body, "Content-Type", "application/json")
			text, err := io.ReadAll(answered)
			if err != nil || answered.code != tc.code || !strings.Contains(string(text), tc.answer) {
				t.Errorf("%d %s (%v); want %d %s", answered.code, text, err, tc.code, tc.answer)
			}
		})
	}
	if answered := all.request(http.MethodPost, "/api/claims", strings.NewReader(claim), "Content-Type", "text/plain"); answered.code != http.StatusBadRequest {
		t.Errorf("a claim as a form sends it: %d", answered.code)
	}
}

// TestQuestionsOfSameKindAreSerialized sends a question while another one is being answered.
func TestQuestionsOfSameKindAreSerialized(t *testing.T) {
	l := filled(t).live()
	<-l.AllRead()
	s := &server{Options: Options{Live: l, Commands: commands{}}}
	started, end, answers := make(chan struct{}), make(chan struct{}), 0
	handler := s.question(func(context.Context, url.Values) (any, error) {
		if answers++; answers == 1 {
			close(started)
			<-end
		}
		return "an answer", nil
	})
	ask := func(ctx context.Context) int {
		answered := httptest.NewRecorder()
		handler(answered, httptest.NewRequestWithContext(ctx, http.MethodGet, "/a", nil))
		return answered.Code
	}
	first := make(chan int)
	go func() { first <- ask(t.Context()) }()
	<-started
	canceled, leave := context.WithCancel(t.Context())
	leave()
	if code := ask(canceled); code != http.StatusServiceUnavailable || answers != 1 {
		t.Errorf("another one while the first is answered: %d, asked: %t", code, answers != 1)
	}
	close(end)
	if code := <-first; code != http.StatusOK {
		t.Errorf("the first: %d", code)
	}
	if code := ask(t.Context()); code != http.StatusOK || answers != 2 {
		t.Errorf("the next: %d, asked: %t", code, answers == 2)
	}
}
