package picture

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cadastre-dev/cadastre/hack/dashboards"
	"github.com/cadastre-dev/cadastre/test/perf/picture/draw"
)

// answering is a Prometheus that answers every query so, and notes them.
func answering(t *testing.T, code int, answer string) (*server, *[]string) {
	t.Helper()
	var asked []string
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path+" "+r.FormValue("query"))
		w.WriteHeader(code)
		_, _ = fmt.Fprint(w, answer)
	}))
	t.Cleanup(web.Close)
	return &server{url: web.URL}, &asked
}

func span() draw.Span {
	from := time.Unix(1_800_000_000, 0)
	return draw.Span{From: from, To: from.Add(time.Minute), Step: interval}
}

func TestAnswersAreReadWithoutWhatIsNoNumber(t *testing.T) {
	s, _ := answering(t, http.StatusOK, `{"status":"success","data":{"resultType":"matrix","result":[
		{"metric":{"pool":"p"},"values":[[1800000000,"1"],[1800000010.5,"NaN"],[1800000020,"+Inf"],[1800000030,"2.5"]]},
		{"metric":{"pool":"q"},"values":[[1800000000,"NaN"]]}]}}`)
	got, err := s.over(t.Context(), "any", span())
	if err != nil {
		t.Fatal(err)
	}
	want := []draw.Series{{Labels: map[string]string{"pool": "p"}, Points: []draw.Point{
		{At: time.Unix(1_800_000_000, 0), Value: 1}, {At: time.Unix(1_800_000_030, 0), Value: 2.5},
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAnErrorOfPrometheusNamesTheQuery(t *testing.T) {
	s, _ := answering(t, http.StatusBadRequest, `{"status":"error","error":"parse error"}`)
	if _, err := s.now(t.Context(), "sum(", span()); err == nil || !strings.Contains(err.Error(), "sum(") || !strings.Contains(err.Error(), "parse error") {
		t.Errorf("got %v", err)
	}
}

// TestVariablesAreAllThatCanBeChosen: those without a value for all are any of their values.
func TestVariablesAreAllThatCanBeChosen(t *testing.T) {
	s, asked := answering(t, http.StatusOK, `{"status":"success","data":{"result":[
		{"metric":{"job":"a.b"},"value":[1800000000,"1"]},{"metric":{"job":"c"},"value":[1800000000,"1"]}]}}`)
	d := dashboards.Dashboard{
		Templating: dashboards.Templating{List: []dashboards.Variable{
			{Name: "datasource"}, {Name: "job", Definition: "label_values(up, job)"}, {Name: "pool", Definition: "label_values(x, pool)", AllValue: ".*"},
		}},
		Panels: []dashboards.Panel{{ID: 1, Targets: []dashboards.Target{
			{Expr: `rate(m{job=~"$job", pool=~"$pool"}[$__rate_interval])`, Range: true}, {Expr: `n{job=~"$job"}`, Instant: true},
		}}},
	}
	if _, err := s.answers(t.Context(), d, span()); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"/api/v1/query group by (job) (up)",
		`/api/v1/query_range rate(m{job=~"a\\.b|c", pool=~".*"}[40s])`,
		`/api/v1/query n{job=~"a\\.b|c"}`,
	}
	if diff := cmp.Diff(want, *asked); diff != "" {
		t.Error(diff)
	}
}
