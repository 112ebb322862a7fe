package causes

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/pprof/profile"
)

// TestSampleCountsForFirstRule expects that the order of the rules decides, not that of the stack.
func TestSampleCountsForFirstRule(t *testing.T) {
	p := &profile.Profile{SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}}}
	for _, sample := range []struct {
		nanoseconds int64
		stack       []string
	}{
		{30, []string{"runtime.memmove", "k8s.io/apimachinery/pkg/runtime/serializer/json.(*Serializer).Decode", "k8s.io/apiserver/pkg/storage/etcd3.(*watchChan).transform"}},
		{20, []string{"k8s.io/apimachinery/pkg/runtime/serializer/json.(*Serializer).Decode", "net/http.(*conn).serve"}},
		{10, []string{"runtime.gcAssistAlloc", "runtime.mallocgc", "k8s.io/apimachinery/pkg/runtime/serializer/json.(*Serializer).Decode"}},
		{6, []string{"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions.(*matcher).Match", "k8s.io/apiserver/pkg/admission/plugin/webhook/generic.(*Webhook).ShouldCallHook"}},
		{4, []string{"encoding/json.Unmarshal", "k8s.io/apiextensions-apiserver/pkg/apiserver.schemaCoercingDecoder.Decode"}},
		{10, []string{"encoding/json.Unmarshal", "k8s.io/apiserver/pkg/storage/cacher.(*consistencyChecker).check"}},
		{20, []string{"example.com/unknown"}},
	} {
		s := &profile.Sample{Value: []int64{1, sample.nanoseconds}}
		for _, name := range sample.stack {
			f := &profile.Function{ID: uint64(len(p.Function) + 1), Name: name}
			l := &profile.Location{ID: f.ID, Line: []profile.Line{{Function: f}}}
			p.Function, p.Location, s.Location = append(p.Function, f), append(p.Location, l), append(s.Location, l)
		}
		p.Sample = append(p.Sample, s)
	}
	var text bytes.Buffer
	if err := p.Write(&text); err != nil {
		t.Fatal(err)
	}
	got, err := Shares(text.Bytes(), APIServer())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{"decode for the watch cache": 0.3, "decode, encode": 0.24, "match conditions, policies": 0.06, "garbage collection": 0.1, "comparison of the cache with etcd": 0.1, Other: 0.2}
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
