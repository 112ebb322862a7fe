package command

import (
	"strings"
	"testing"

	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

func TestTableEscapesControlCharacters(t *testing.T) {
	rows := &Table{Headers: []string{"HOLDER", "REQUESTED BY"}}
	rows.Add(Cell{Text: "a", Style: Bad}, Text("%s", "eve\x1b[2J\nsecond line"))
	rows.Explain("because\x1b[2J")
	rows.Footer = "end\x1b[2J"
	var out strings.Builder
	if err := rows.Write(&out, true, true); err != nil {
		t.Fatal(err)
	}
	want := "HOLDER   REQUESTED BY\n\x1b[31ma\x1b[0m        eve\\x1b[2J\\nsecond line\n  because\\x1b[2J\nend\\x1b[2J\n"
	if out.String() != want {
		t.Errorf("the table is %q, want %q", out.String(), want)
	}
}

func TestReadableShortensLargeNumbers(t *testing.T) {
	for text, want := range map[string]string{
		"0":                    "0",
		"1":                    "1",
		"16777216":             "16777216",
		"999999999999":         "999999999999",
		"1000000000000":        "1.0e+12",
		"1099511627776":        "2^40",
		"18446744073709551616": "2^64",
		"18446744073709551617": "1.8e+19",
		"18446744073709551615": "1.8e+19",
		"340282366920938463463374607431768211456": "2^128",
		"78918677504442992524819169280":           "7.9e+28",
	} {
		if got := Readable(build.Count(text)); got != want {
			t.Errorf("readable(%s) = %s, want %s", text, got, want)
		}
	}
}

func TestPercentShowsExtremesExactly(t *testing.T) {
	for _, tc := range []struct{ part, of, want string }{
		{"0", "0", "0%"},
		{"0", "256", "0%"},
		{"1", "256", "<1%"},
		{"3", "256", "1%"},
		{"128", "256", "50%"},
		{"255", "256", ">99%"},
		{"256", "256", "100%"},
		{"300", "256", "100%"},
		{"1", "340282366920938463463374607431768211456", "<1%"},
		{"340282366920938463463374607431768211455", "340282366920938463463374607431768211456", ">99%"},
	} {
		if got := Percent(build.Count(tc.part), build.Count(tc.of)); got != tc.want {
			t.Errorf("percent(%s, %s) = %s, want %s", tc.part, tc.of, got, tc.want)
		}
	}
}
