package migrate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/migrate"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

func TestHoldings(t *testing.T) {
	w := start(t)
	w.Namespace("dc")
	t.Run("csv", func(t *testing.T) { (&world{w.For(t), w.dice}).testCSV(size(t) / 5) })
	t.Run("plans", func(t *testing.T) { (&world{w.For(t), w.dice}).testPlans(4) })
	t.Run("netbox", func(t *testing.T) { (&world{w.For(t), w.dice}).testNetBox() })
}

// blocks returns the blocks of the IPClaims of the namespace dc, by name.
func (w *world) blocks() map[string]string {
	w.Helper()
	all := &v1alpha1.IPClaimList{}
	suite.Must(w, w.List(w.Context(), all, client.InNamespace("dc")))
	blocks := map[string]string{}
	for _, claim := range all.Items {
		blocks[claim.Name] = claim.Status.AllocatedCIDR
	}
	return blocks
}

func (w *world) testCSV(n int) {
	var file strings.Builder
	file.WriteString("kind,name,cidr,parent,network,gateway\npool,lab,10.0.0.0/8,,,\npool,hosts,10.1.0.0/16,lab,16,10.1.0.1\nreserved,,10.1.0.2-10.1.0.9,,,\n")
	want := addrs("host", "10.1.0.10", n)
	for name, addr := range want {
		fmt.Fprintf(&file, "claim,%s,%s,,,\n", name, addr)
	}
	do := func(ctx context.Context, c client.Client, o migrate.Options) error {
		o.Namespace = "dc"
		return migrate.CSV(ctx, c, o, strings.NewReader(file.String()))
	}
	w.interrupted(do, migrate.Options{Action: migrate.Apply}, 3, n)
	w.done(do, migrate.Options{Action: migrate.Apply})
	blocks := w.blocks()
	for name, addr := range want {
		if blocks[name] != addr.String()+"/32" {
			w.Fatalf("%s has %q, want %s", name, blocks[name], addr)
		}
	}
	fresh := build.Claim("dc", "fresh").Pool("hosts").Obj()
	w.Created(fresh)
	if got, first := fresh.Status.AllocatedCIDR, fmt.Sprintf("10.1.%d.%d/32", (n+10)/256, (n+10)%256); got != first {
		w.Errorf("a new claim gets %s, want %s, the first free one", got, first)
	}
	w.refused(do, migrate.Options{Action: migrate.Rollback}, "IPClaim dc/fresh")
	w.Deleted(fresh)
	w.Gone(fresh)
	w.interrupted(do, migrate.Options{Action: migrate.Rollback}, 2, n)
	w.done(do, migrate.Options{Action: migrate.Rollback})
	if left := w.countPools(); len(w.blocks()) > 0 || left > 0 {
		w.Errorf("%d claims and %d pools are left", len(w.blocks()), left)
	}
}

// testPlans imports random files: the import makes an accepted plan and nothing of a refused one,
// but with SkipProblems the rest.
func (w *world) testPlans(n int) {
	for range n {
		file := "kind,name,cidr,namespace,network,gateway\npool,big,10.64.0.0/16,,,\npool,hosts,10.64.1.0/24,,24,10.64.1.1\nreserved,,10.64.1.100-10.64.1.199,,,\n"
		for range 1 + w.dice.IntN(4) {
			file += fmt.Sprintf("pool,p%d,10.64.%d.0/%d,,,\n", w.dice.IntN(9), w.dice.IntN(3)*2, 23+w.dice.IntN(2))
			file += fmt.Sprintf("claim,,10.64.%d.%d,%s,,\n", w.dice.IntN(3), w.dice.IntN(20)*10+1, []string{"", "", "", "nowhere"}[w.dice.IntN(4)])
		}
		do := func(ctx context.Context, c client.Client, o migrate.Options) error {
			o.Namespace = "dc"
			return migrate.CSV(ctx, c, o, strings.NewReader(file))
		}
		skip := false
		if _, err := w.run(do, migrate.Options{}); err != nil {
			if _, ok := errors.AsType[*migrate.ProblemsError](err); !ok {
				w.Fatalf("%v\n%s", err, file)
			}
			skip = true
			if _, err := w.run(do, migrate.Options{Action: migrate.Apply}); err == nil || w.countPools() > 0 {
				w.Fatalf("with problems: %v, and %d pools\n%s", err, w.countPools(), file)
			}
		}
		for _, action := range []migrate.Action{migrate.Apply, migrate.Apply, migrate.Rollback} { // existing objects are left as they are
			if _, err := w.run(do, migrate.Options{Action: action, SkipProblems: skip}); err != nil {
				w.Fatalf("%v\n%s", err, file)
			}
		}
		if left := w.countPools(); left > 0 || len(w.blocks()) > 0 {
			w.Fatalf("%d pools and %d claims are left", left, len(w.blocks()))
		}
	}
}

func (w *world) countPools() int {
	w.Helper()
	pools := &v1alpha1.IPPoolList{}
	suite.Must(w, w.List(w.Context(), pools))
	return len(pools.Items)
}

func (w *world) testNetBox() {
	const prefixes = `{"count": 2, "next": null, "results": [
		{"id": 1, "prefix": "10.0.0.0/8", "status": {"value": "container"}},
		{"id": 2, "prefix": "10.1.0.0/24", "status": {"value": "active"}},
		{"id": 3, "prefix": "10.1.0.0/24", "status": {"value": "active"}, "vrf": {"id": 1, "name": "Blue"}}]}`
	const addresses = `{"count": 3, "next": null, "results": [
		{"id": 1, "address": "10.1.0.7/24", "status": {"value": "active"}, "dns_name": "db.example.com"},
		{"id": 2, "address": "10.1.0.8/24", "status": {"value": "reserved"}},
		{"id": 3, "address": "10.1.0.7/24", "status": {"value": "active"}, "vrf": {"id": 1, "name": "Blue"}}]}`
	do := func(ctx context.Context, c client.Client, o migrate.Options) error {
		o.Namespace = "dc"
		return migrate.NetBox(ctx, c, o, []io.Reader{strings.NewReader(prefixes), strings.NewReader(addresses)}...)
	}
	w.done(do, migrate.Options{Action: migrate.Apply})
	blocks := w.blocks()
	if len(blocks) != 2 || blocks["db.example.com"] != "10.1.0.7/32" || blocks["ip-10-1-0-7-blue"] != "10.1.0.7/32" {
		w.Errorf("claims are %v", blocks)
	}
	w.done(do, migrate.Options{Action: migrate.Rollback})
	if blocks := w.blocks(); len(blocks) > 0 {
		w.Errorf("left are %v", blocks)
	}
}
