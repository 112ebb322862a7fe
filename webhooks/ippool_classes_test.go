package webhooks

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/authorize"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
	"github.com/cadastre-dev/cadastre/internal/testing/replica"
)

func TestClassNamesWithoutEffectWarn(t *testing.T) {
	catalog := inventory.New(inventory.Options{Ledger: ledger.New(ledger.Options{})})
	shared := &services{Options: Options{Catalog: catalog}}
	catalog.SetClass(inventory.ClassEntry{Class: ipam.Class{Name: "four", Family: ipam.IPv4}})
	catalog.SetClass(inventory.ClassEntry{Class: ipam.Class{Name: "six", Family: ipam.IPv6}})
	catalog.SetClass(inventory.ClassEntry{Class: ipam.Class{Name: "sixty", Family: ipam.IPv6}})
	const none, other = `spec.classNames: there is no IPClass `, `spec.classNames: IPClass "six" does not hand out IPv4, the family of this pool: remove it, as it is not served from here`
	const closed = `spec.classNames: IPClass "four" does not allow LocalIPPools and is not served from here: remove it, or ask for its spec.allowLocalPools`
	catalog.SetClass(inventory.ClassEntry{Class: ipam.Class{Name: "open", Family: ipam.IPv4, LocalPools: true}})
	own := ipam.LocalPoolNamed("team", "own")
	var rows []messages.Row
	for name, tc := range map[string]struct {
		key     ipam.PoolKey
		family  ipam.Family
		classes []string
		want    []string
	}{
		"a class of the family":            {ipam.PoolKey{}, ipam.IPv4, []string{"four"}, nil},
		"a class of the other":             {ipam.PoolKey{}, ipam.IPv4, []string{"four", "six"}, []string{other}},
		"several classes of the other":     {ipam.PoolKey{}, ipam.IPv4, []string{"six", "sixty"}, []string{`spec.classNames: IPClasses "six", "sixty" do not hand out IPv4, the family of this pool: remove them, as they are not served from here`}},
		"no such class":                    {ipam.PoolKey{}, ipam.IPv4, []string{"gold"}, []string{none + `"gold": create it, or correct the name`}},
		"both":                             {ipam.PoolKey{}, ipam.IPv4, []string{"six", "gold"}, []string{none + `"gold": create it, or correct the name`, other}},
		"many":                             {ipam.PoolKey{}, ipam.IPv4, []string{"a", "b", "c", "d", "e", "f", "g"}, []string{`spec.classNames: there are no IPClasses "a", "b", "c", "d", "e", and 2 more: create them, or correct the names`}},
		"a pool whose family is not known": {ipam.PoolKey{}, "", []string{"four", "six"}, nil},
		"a LocalIPPool":                    {own, ipam.IPv4, []string{"open", "four"}, []string{closed}},
		"a LocalIPPool with several classes that exclude it": {own, ipam.IPv4, []string{"open", "four", "six"}, []string{`spec.classNames: IPClasses "four", "six" do not allow LocalIPPools and are not served from here: remove them, or ask for their spec.allowLocalPools`}},
	} {
		t.Run(name, func(t *testing.T) {
			got := shared.classWarnings(ipam.Pool{Key: tc.key, Family: tc.family, Classes: tc.classes})
			if !slices.Equal(got, tc.want) {
				t.Errorf("\ngot:  %q\nwant: %q", got, tc.want)
			}
			for _, warning := range got {
				rows = append(rows, messages.Row{Object: cmp.Or(string(tc.key.Kind), "IPPool"), On: messages.CreateOrUpdate, Answer: "warning", Message: warning})
			}
		})
	}
	messages.Golden(t, rows)
}

// TestPoolOfProvisionersClassTakesRight expects the verb provision to be asked for with each class that a
// pool adds and that may be a provisioner's, once for all and then until the first denial.
func TestPoolOfProvisionersClassTakesRight(t *testing.T) {
	catalog := inventory.New(inventory.Options{Ledger: ledger.New(ledger.Options{})})
	catalog.SetClass(inventory.ClassEntry{Class: ipam.Class{Name: "ours", Family: ipam.IPv4}})
	catalog.SetClass(inventory.ClassEntry{Class: ipam.Class{Name: "leased", Provisioner: "example.com/ipam", Family: ipam.IPv4}})
	const refusal = `ippools.ipam.cadastre.dev "p" is forbidden: spec.classNames: user "jane" cannot add pools to the IPClass "leased", which has a provisioner or does not exist: remove it, or have the verb provision on that ipclass granted`
	broken := errors.New("the API server is down")
	pool := func(classes ...string) v1alpha1.Pool {
		return build.Pool("p").CIDR("10.0.0.0/24").Classes(classes...).Obj()
	}
	var rows []messages.Row
	for name, tc := range map[string]struct {
		before, after v1alpha1.Pool
		allowed       []string // classes, "" is all
		err           error
		asked         []string
		want          string
	}{
		"created without class":        {nil, pool(), nil, nil, nil, ""},
		"created for our class":        {nil, pool("ours"), nil, nil, nil, ""},
		"created with the right":       {nil, pool("ours", "leased", "unknown"), []string{"leased", "unknown"}, nil, []string{"", "leased", "unknown"}, ""},
		"created with all rights":      {nil, pool("leased", "unknown"), []string{""}, nil, []string{""}, ""},
		"created without the right":    {nil, pool("leased", "unknown"), []string{"unknown"}, nil, []string{"", "leased"}, refusal},
		"created for an unknown one":   {nil, pool("unknown", "leased"), nil, nil, []string{"", "unknown"}, strings.Replace(refusal, `"leased"`, `"unknown"`, 1)},
		"the right is not known":       {nil, pool("leased"), nil, broken, []string{""}, broken.Error()},
		"a class is added":             {pool("ours"), pool("ours", "leased"), nil, nil, []string{"", "leased"}, refusal},
		"a class stays":                {pool("leased"), pool("leased", "ours"), nil, nil, nil, ""},
		"a class is removed":           {pool("leased"), pool(), nil, nil, nil, ""},
		"a namespace's own is created": {nil, build.Pool("p").CIDR("10.0.0.0/24").Classes("leased").In("team"), nil, nil, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			reviews := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
				Create: func(_ context.Context, _ client.WithWatch, obj client.Object, _ ...client.CreateOption) error {
					review := obj.(*authorizationv1.SubjectAccessReview)
					right := review.Spec.ResourceAttributes
					if review.Spec.User != "jane" || right.Verb != "provision" || right.Resource != "ipclasses" {
						t.Errorf("asked with %+v", review.Spec)
					}
					asked = append(asked, right.Name)
					review.Status.Allowed = slices.Contains(tc.allowed, right.Name)
					return tc.err
				},
			}).Build()
			s := &services{Options: Options{Catalog: catalog, Rights: authorize.NewRights(reviews)}}
			user := authenticationv1.UserInfo{Username: "jane"}
			var err error
			if tc.before == nil {
				err = s.checkProvision(t.Context(), user, tc.after, tc.after.PoolSpec().ClassNames)
			} else {
				_, err = poolValidator[v1alpha1.Pool](s).update(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{UserInfo: user}}, tc.before, tc.after)
			}
			if !slices.Equal(asked, tc.asked) {
				t.Errorf("asked for %q, want %q", asked, tc.asked)
			}
			switch {
			case tc.want == "" && err != nil, tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("\ngot:  %v\nwant: %s", err, tc.want)
			case apierrors.IsForbidden(err):
				rows = append(rows, messages.Row{Object: "IPPool", On: messages.CreateOrUpdate, Answer: "403", Value: "jane", Message: err.Error()})
			}
		})
	}
	messages.Golden(t, rows)
}

// TestClassExcludingLocalPoolsWarns covers the edits of a class that LocalIPPools name.
func TestClassExcludingLocalPoolsWarns(t *testing.T) {
	r := replica.New(replica.Options{})
	for _, key := range []ipam.PoolKey{ipam.PoolNamed("p"), ipam.LocalPoolNamed("team", "own"), ipam.LocalPoolNamed("other", "own")} {
		r.Catalog.SetPool(ipam.Pool{Key: key, Classes: []string{"gold"}})
	}
	r.Catalog.SetPool(ipam.Pool{Key: ipam.PoolNamed("q"), Classes: []string{"lead"}})
	m := &classMutator{&services{Options: Options{Catalog: r.Catalog}}}
	open, closed := build.Class("gold").LocalPools(), build.Class("gold")
	got := m.excludedWarnings(open.Obj(), closed.Obj())
	want := []string{"spec.allowLocalPools: new claims of this class are no longer served from 2 LocalIPPools that have it in classNames, and blocks that are held stay: set it again if claims need these pools"}
	if !slices.Equal(got, want) {
		t.Errorf("\ngot:  %q\nwant: %q", got, want)
	}
	for name, none := range map[string][]string{
		"allowed as before": m.excludedWarnings(open.Obj(), open.Obj()), "allowed": m.excludedWarnings(closed.Obj(), open.Obj()),
		"excluded as before": m.excludedWarnings(closed.Obj(), closed.Obj()), "no LocalIPPool names it": m.excludedWarnings(build.Class("lead").LocalPools().Obj(), build.Class("lead").Obj()),
	} {
		if len(none) > 0 {
			t.Errorf("%s: got %q", name, none)
		}
	}
	messages.Golden(t, []messages.Row{{Object: "IPClass", On: "update", Answer: "warning", Value: "2 LocalIPPools", Message: got[0]}})
}
