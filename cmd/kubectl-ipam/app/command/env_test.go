package command

import (
	"bytes"
	"strings"
	"testing"
)

func TestConfirmationRequiresYes(t *testing.T) {
	for answer, yes := range map[string]bool{"y\n": true, "YES\n": true, "\n": false, "": false, "n\n": false, "yep\n": false, "y": true} {
		var out bytes.Buffer
		if err := ask(t.Context(), strings.NewReader(answer), &out, "Release it?"); (err == nil) != yes {
			t.Errorf("%q: got %v", answer, err)
		}
		if out.String() != "Release it? [y/N] " {
			t.Errorf("asked %q", out.String())
		}
	}
}
