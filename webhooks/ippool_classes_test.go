package webhooks

import (
	"slices"
	"testing"

	"github.com/cadastre-dev/cadastre/internal/catalogue"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/test/lint/messages"
)

func TestClassNamesWithoutEffectAreWarnedOf(t *testing.T) {
	known := catalogue.New(catalogue.Options{Ledger: ledger.New(ledger.Options{})})
	known.SetClass(catalogue.ClassEntry{Class: ipam.Class{Name: "four", Family: ipam.IPv4}})
	known.SetClass(catalogue.ClassEntry{Class: ipam.Class{Name: "six", Family: ipam.IPv6}})
	known.SetClass(catalogue.ClassEntry{Class: ipam.Class{Name: "sixty", Family: ipam.IPv6}})
	const none, other = `spec.classNames: there is no IPClass `, `spec.classNames: IPClass "six" does not hand out IPv4, the family of this pool: remove it, as it is not served from here`
	var rows []messages.Row
	for name, tc := range map[string]struct {
		family  ipam.Family
		classes []string
		want    []string
	}{
		"a class of the family":            {ipam.IPv4, []string{"four"}, nil},
		"a class of the other":             {ipam.IPv4, []string{"four", "six"}, []string{other}},
		"several classes of the other":     {ipam.IPv4, []string{"six", "sixty"}, []string{`spec.classNames: IPClasses "six", "sixty" do not hand out IPv4, the family of this pool: remove them, as they are not served from here`}},
		"no such class":                    {ipam.IPv4, []string{"gold"}, []string{none + `"gold": create it, or correct the name`}},
		"both":                             {ipam.IPv4, []string{"six", "gold"}, []string{none + `"gold": create it, or correct the name`, other}},
		"many":                             {ipam.IPv4, []string{"a", "b", "c", "d", "e", "f", "g"}, []string{`spec.classNames: there are no IPClasses "a", "b", "c", "d", "e", and 2 more: create them, or correct the names`}},
		"a pool whose family is not known": {"", []string{"four", "six"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := classWarnings(known, ipam.Pool{Family: tc.family, Classes: tc.classes})
			if !slices.Equal(got, tc.want) {
				t.Errorf("\ngot:  %q\nwant: %q", got, tc.want)
			}
			for _, warning := range got {
				rows = append(rows, messages.Row{Object: "IPPool", On: messages.CreateOrUpdate, Answer: "warning", Message: warning})
			}
		})
	}
	messages.Golden(t, rows)
}
