package webhooks

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLongestStringIsMeasured(t *testing.T) {
	for text, want := range map[string]int{
		`{}`: 0, `{"a":"bcd"}`: 3, `{"abcd":[1,{"x":"\\\""}]}`: 4, `[12345,1.5e100]`: 7, `{"a":-12,"b":null}`: 2, `{"a":"b`: 1,
	} {
		if got := count([]byte(text)).longest; got != want {
			t.Errorf("that of %s is %d, want %d", text, got, want)
		}
	}
}

// FuzzRawJSON compares the values that are read from a text with those that the library decodes
// from it.
func FuzzRawJSON(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"a":1}`, ` { "a" : [ ] , "b" : { } } `, `{"a":"\"","b":"\\","c":"\\\"}"}`, `{"a":[1,[2,{"x":"]"}],{}],"b":null}`,
		`{"metadata":{"labels":{"a":"b"},"managedFields":[{"f:x":{}}]},"spec":{}}`, `{"a":-1.5e9,"b":true}`, `[{}]`, `{"a"`, `{"a":`, `{"a":}`, `{"a":1`, `{"a":"`, `"`, ``,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		members := map[string]json.RawMessage{}
		names := 0
		err := eachMember([]byte(text), func(name, value []byte) {
			names++
			members[string(name)] = value
		})
		got := count([]byte(text))
		var want map[string]json.RawMessage
		if json.Unmarshal([]byte(text), &want) != nil || want == nil {
			return // that it does not panic is enough
		}
		if err != nil {
			t.Fatalf("%q cannot be read: %v", text, err)
		}
		for name := range want {
			if quoted, _ := json.Marshal(name); len(want) != names || string(quoted) != `"`+name+`"` || members[name] == nil {
				return // names with escapes, or more than once, are not written by the API server
			}
		}
		if diff := cmp.Diff(want, members); diff != "" {
			t.Errorf("members of %q (-want +got):\n%s", text, diff)
		}
		if all := entriesOf(decodeJSON(t, []byte(text))); got.direct != len(want) || got.total != all {
			t.Errorf("%q has %+v; want %d entries, and %d in all", text, got, len(want), all)
		}
		same, err := appendObject(nil, []byte(text), func(to []byte, _ string, value []byte) []byte { return append(to, value...) })
		if err != nil || !cmp.Equal(decodeJSON(t, same), decodeJSON(t, []byte(text))) {
			t.Errorf("%q is written again as %q: %v", text, same, err)
		}
	})
}

func decodeJSON(t *testing.T, text []byte) any {
	t.Helper()
	var value any
	must(t, json.Unmarshal(text, &value))
	return value
}

// entriesOf counts the entries of a decoded text.
func entriesOf(value any) int {
	n := 0
	switch value := value.(type) {
	case map[string]any:
		for _, v := range value {
			n += 1 + entriesOf(v)
		}
	case []any:
		for _, v := range value {
			n += 1 + entriesOf(v)
		}
	}
	return n
}
