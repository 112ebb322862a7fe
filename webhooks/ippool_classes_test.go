package webhooks

import (
	"slices"
	"testing"

	"github.com/cadastre-dev/cadastre/internal/catalogue"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

func TestClassNamesWithoutEffectAreWarnedOf(t *testing.T) {
	known := catalogue.New(catalogue.Options{Ledger: ledger.New(ledger.Options{})})
	known.SetClass(catalogue.ClassEntry{Class: ipam.Class{Name: "four", Family: ipam.IPv4}})
	known.SetClass(catalogue.ClassEntry{Class: ipam.Class{Name: "six", Family: ipam.IPv6}})
	const none, other = `spec.classNames: there is no IPClass `, `spec.classNames: IPClass "six" does not hand out IPv4, the family of this pool: it is not served from here`
	for name, tc := range map[string]struct {
		family  ipam.Family
		classes []string
		want    []string
	}{
		"a class of the family":            {ipam.IPv4, []string{"four"}, nil},
		"a class of the other":             {ipam.IPv4, []string{"four", "six"}, []string{other}},
		"no such class":                    {ipam.IPv4, []string{"gold"}, []string{none + `"gold": create it, or correct the name`}},
		"both":                             {ipam.IPv4, []string{"six", "gold"}, []string{none + `"gold": create it, or correct the name`, other}},
		"many":                             {ipam.IPv4, []string{"a", "b", "c", "d", "e", "f", "g"}, []string{none + `"a", "b", "c", "d", "e", and 2 more: create it, or correct the name`}},
		"a pool whose family is not known": {"", []string{"four", "six"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := classWarnings(known, ipam.Pool{Family: tc.family, Classes: tc.classes}); !slices.Equal(got, tc.want) {
				t.Errorf("\ngot:  %q\nwant: %q", got, tc.want)
			}
		})
	}
}
