package plugin

import (
	"testing"

	"github.com/cadastre-dev/cadastre/internal/cli"
)

// create makes pools and classes, and writes their manifests.
func (w *world) create(t *testing.T) {
	admin := w.as(t, "")
	admin.runs("kubectl ipam create class hosts --length 32 --dry-run=client -o yaml")
	admin.runs("kubectl ipam create pool team-b --parent core --length 20 --project team-b --dry-run=client -o yaml")
	admin.runs("kubectl ipam create pool rack-7 --cidr 198.51.100.0/24 --gateway 198.51.100.1 --dns 198.51.100.53,192.0.2.53 --class hosts --reserved 198.51.100.2-198.51.100.9 --reuse-delay 1h --limit-blocks 4 --dry-run=client -o yaml")
	admin.runs("kubectl ipam create pool team-b --parent core --length 20 --project team-b --dry-run")
	admin.runs("kubectl ipam create pool team-b --parent core --length 20 --project team-b --wait")
	admin.runs("kubectl ipam create pool team-a --parent core --length 20 --local -n team-a --wait")
	admin.runs("kubectl ipam create class hosts --length 32")
	admin.runs("kubectl ipam create class hosts --length 32").ends(cli.ExitConflict)
	admin.runs("kubectl ipam create class wrong --length 40 --min-length 28 --max-length 20").ends(cli.ExitUsage)
	admin.runs("kubectl ipam create pool wrong --cidr 10.0.0.1/8").ends(cli.ExitUsage)
	admin.runs("kubectl ipam create pool none --length x").ends(cli.ExitUsage)
	admin.runs("kubectl ipam create pool none --local --project team-a").ends(cli.ExitUsage)
	admin.runs("kubectl ipam create pool team-c --parent none --length 20 --wait=100ms").ends(cli.ExitTimedOut)
	admin.runs("kubectl ipam create vlan").ends(cli.ExitUsage)
	admin.matches("create")
	alice := w.as(t, "alice")
	alice.runs("kubectl ipam create pool mine --cidr 192.168.0.0/16 --local -n team-a")
	alice.runs("kubectl ipam create pool more --cidr 172.30.0.0/16").ends(cli.ExitForbidden)
	alice.matches("create-tenant")
}

// pause pauses a pool and resumes it.
func (w *world) pause(t *testing.T) {
	admin := w.as(t, "")
	admin.runs("kubectl ipam pause lab --dry-run")
	admin.runs("kubectl ipam pause lab")
	admin.runs("kubectl ipam pause lab")
	admin.runs("kubectl ipam claim --pool lab --length 28 --name rests -n team-b").ends(cli.ExitExhausted)
	admin.runs("kubectl ipam resume lab --dry-run=client")
	admin.runs("kubectl ipam resume lab --dry-run=client -o jsonpath={.metadata.annotations}").hides("paused")
	admin.runs("kubectl ipam resume lab")
	admin.runs("kubectl ipam resume lab")
	admin.runs("kubectl ipam claim --pool lab --length 28 --name rests -n team-b --wait=20s -q").ends(cli.ExitDone)
	admin.runs("kubectl ipam pause none").ends(cli.ExitNotFound)
	admin.runs("kubectl ipam pause vlan/7").ends(cli.ExitUsage)
	admin.runs("kubectl ipam release rests -n team-b --yes").ends(cli.ExitDone)
	admin.matches("pause")
	alice := w.as(t, "alice")
	alice.runs("kubectl ipam pause lab").ends(cli.ExitForbidden)
	alice.runs("kubectl ipam pause own -n team-a")
	alice.runs("kubectl ipam resume localippool/own -n team-a")
	alice.matches("pause-tenant")
}

// claim asks for blocks.
func (w *world) claim(t *testing.T) {
	alice := w.as(t, "alice")
	alice.runs("kubectl ipam claim -n team-a --dry-run")
	alice.runs("kubectl ipam claim -n team-a --name web --class subnets --length 26")
	alice.runs("kubectl ipam claim -n team-a --name web --class subnets --length 26 -q")
	alice.runs("kubectl ipam claim -n team-a --name web").ends(cli.ExitDone)
	alice.runs("kubectl ipam claim -n team-a --name web --length 27").ends(cli.ExitConflict)
	alice.runs("kubectl ipam claim -n team-a --name web --pool own").ends(cli.ExitConflict)
	alice.runs("kubectl ipam claim -n team-a --name db --pool own --cidr 172.16.0.77 -o wide")
	alice.runs("kubectl ipam claim -n team-a --name db --pool own --cidr 172.16.0.77 -o name")
	alice.runs("kubectl ipam claim -n team-a --name db --pool own --cidr 172.16.0.77 -o jsonpath={.status.address}")
	alice.runs("kubectl ipam claim -n team-a --name db-2 --pool own --cidr 172.16.0.77").ends(cli.ExitConflict)
	alice.runs("kubectl ipam claim -n team-a --name plain --class subnets --dry-run=client -o yaml")
	alice.runs("kubectl ipam claim -n team-a --name host --pool nodes -o wide")
	alice.runs("kubectl ipam claim -n team-a --name more --pool vips --length 31").ends(cli.ExitExhausted)
	alice.runs("kubectl ipam claim -n team-a --name more --pool vips --length 31 --wait=100ms").ends(cli.ExitTimedOut)
	alice.runs("kubectl ipam claim -n team-a --name lost --class none").ends(cli.ExitNotFound)
	alice.runs("kubectl ipam claim -n team-a --name wrong --cidr 10.0.0.1/24 --length 99").ends(cli.ExitUsage)
	alice.runs("kubectl ipam claim -n team-a --name wrong --cidr 10.0.0.1/24").ends(cli.ExitUsage)
	alice.runs("kubectl ipam claim -n team-a --class subnets --pool own").ends(cli.ExitUsage)
	alice.runs("kubectl ipam claim -n team-a -q -o yaml").ends(cli.ExitUsage)
	alice.runs("kubectl ipam claim -n team-b --class subnets").ends(cli.ExitForbidden)
	alice.matches("claim")
}
