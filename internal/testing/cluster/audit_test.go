package cluster

import (
	"strings"
	"testing"
)

func TestAuditSkipsUnfinishedLine(t *testing.T) {
	for log, want := range map[string]int{
		"":                                      0,
		`{"verb":"get"}` + "\n":                 1,
		`{"verb":"get"}` + "\n" + `{"verb":"li`: 1,
		`{"verb":"get"}` + "\n" + `{"verb":"list"}`:  1,
		`{"verb":"get"}` + "\n{\"verb\":\"list\"}\n": 2,
	} {
		got, err := readAudit(strings.NewReader(log))
		if err != nil || len(got) != want {
			t.Errorf("%q: %d requests, %v; want %d", log, len(got), err, want)
		}
	}
	if _, err := readAudit(strings.NewReader("{\n")); err == nil {
		t.Error("a complete line that is no JSON was accepted")
	}
}
