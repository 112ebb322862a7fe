package allocator

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
)

func TestUnreadyPoolStatesReason(t *testing.T) {
	var rows []messages.Row
	for name, c := range map[string]struct {
		change func(*testing.T, *Allocator, *steady, *ipam.Pool)
		want   string
	}{
		"nothing":             {func(*testing.T, *Allocator, *steady, *ipam.Pool) {}, ""},
		"it is being deleted": {func(_ *testing.T, _ *Allocator, _ *steady, p *ipam.Pool) { p.Terminating = true }, "pool parent is being deleted: use another pool"},
		"it is paused":        {func(_ *testing.T, _ *Allocator, _ *steady, p *ipam.Pool) { p.Paused = true }, "pool parent is paused by an annotation: have it removed, or use another pool"},
		"it has no CIDR":      {func(_ *testing.T, _ *Allocator, _ *steady, p *ipam.Pool) { p.CIDR = netip.Prefix{} }, "pool parent has no CIDR yet: wait until it has, or use another pool"},
		"it has another CIDR": {func(_ *testing.T, _ *Allocator, _ *steady, p *ipam.Pool) {
			p.CIDR = netip.MustParsePrefix("10.9.0.0/16")
		}, "the CIDR of pool parent is not recorded yet: wait until it is, or use another pool"},
		"its CIDR is another's": {func(t *testing.T, a *Allocator, api *steady, p *ipam.Pool) {
			own := ownRecord(a, ipam.PoolNamed("child"), "10.0.0.0/24", ipam.StateBound)
			own.Pool = p.Home
			api.stores(t, own)
			p.Key, p.CIDR = ipam.PoolNamed("child"), own.Block
		}, "the CIDR of pool child conflicts with another allocation: have one of the two released, or use another pool"},
		"its record is releasing": {func(t *testing.T, a *Allocator, api *steady, _ *ipam.Pool) {
			own := api.server.list().Items[0]
			record, _ := convert.Record(&own)
			if marked, err := a.MarkReleasing(t.Context(), record); err != nil || marked.State != ipam.StateReleasing {
				t.Fatalf("marking it: got %+v, %v", marked, err)
			}
		}, "pool parent is being released: use another pool"},
		"its Cluster is missing": {func(_ *testing.T, a *Allocator, _ *steady, p *ipam.Pool) {
			a.Catalog.TrackClusters()
			p.Key, p.Labels = ipam.LocalPoolNamed("ns", "own"), map[string]string{v1alpha1.LabelCluster: "prod"}
		}, "pool ns/own: there is no Cluster prod, to which it belongs: create it, or take the label cluster.x-k8s.io/cluster-name off"},
	} {
		runNamedOnReplica(t, name, func(t *testing.T, a *Allocator, api *steady) {
			pool := openParent(a)
			c.change(t, a, api, &pool)
			err := a.Catalog.PoolReady(pool)
			missing, ok := errors.AsType[*ipam.MissingError](err)
			if c.want == "" && err != nil || c.want != "" && (!ok || missing.Reason != v1alpha1.ReasonPoolNotReady || missing.Message != c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if ok {
				rows = append(rows, messages.Row{Object: "IPClaim", On: "condition Ready", Answer: "False, " + missing.Reason, Value: pool.Key.Name, Message: missing.Message})
			}
			a.Catalog.SetProject("ns", "ns")
			a.Catalog.SetPool(pool)
			request := ipam.Request{Claim: ipam.Name{Namespace: "ns", Name: "x"}, Pool: pool.Key, Length: 28}
			if res, err := a.Resolve(t.Context(), request); (err == nil) != (c.want == "") || (len(res.Pools) == 1) != (c.want == "") {
				t.Errorf("a claim of it: got %+v, %v", res.Pools, err)
			}
		})
	}
	messages.Golden(t, rows)
}

// TestTakeoverIsStored expects the record as the claim's: for good if the claim exists, and
// until the record was due if it does not.
func TestTakeoverIsStored(t *testing.T) {
	for _, uid := range []string{"", "uid"} {
		for _, cut := range []bool{false, true} {
			runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
				order := claimOrder("x", 28)
				order.existsAs(uid)
				kept := order.recordOf(parent(), netip.MustParsePrefix("10.0.0.16/28"))
				kept.Name.Name, kept.State, kept.Reclaim, kept.HolderUID, kept.ReleaseAfter = "x-former", ipam.StateRetained, ipam.ReclaimRetain, "former", due
				kept = api.stores(t, kept)
				if cut {
					api.calls(map[string]error{"patch": errCut})
				}
				record, err := a.Allocate(t.Context(), order)
				if cut {
					if err != nil || record.UID == kept.UID {
						t.Errorf("UID %q, cut off: got %+v, %v; want another block", uid, record, err)
					}
					return
				}
				stored := api.stored(kept.Name)
				if err != nil || record.UID != kept.UID || !record.Adopted || record.State != ipam.StateBound || record.HolderUID != uid || record.Version != stored.ResourceVersion {
					t.Errorf("UID %q: got %+v, %v", uid, record, err)
				}
				isStored := uid != ""
				if stored.Spec.State != v1alpha1.AllocationBound || string(stored.Spec.ClaimRef.UID) != uid || stored.Annotations[v1alpha1.AnnotationAdopted] == "" ||
					(stored.Spec.ReleaseAfter == nil) != isStored || (stored.Spec.ReclaimPolicy == v1alpha1.ReclaimDelete) != isStored {
					t.Errorf("UID %q: stored is %+v", uid, stored.Spec)
				}
				if record.ReleaseAfter.IsZero() != isStored || (record.Reclaim == ipam.ReclaimDelete) != isStored {
					t.Errorf("UID %q: got %+v, want policy and time as stored", uid, record)
				}
			})
		}
	}
}

func TestRetentionFollowsClassOrPool(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
		a.Catalog.SetClass(inventory.ClassEntry{Class: ipam.Class{Name: "may", AllowRetain: true}})
		a.Catalog.SetClass(inventory.ClassEntry{Class: ipam.Class{Name: "not"}})
		a.Catalog.SetPool(ipam.Pool{Key: ipam.PoolNamed("may"), AllowRetain: true})
		a.Catalog.SetPool(ipam.Pool{Key: ipam.PoolNamed("not")})
		from := heldBlock("x", "10.0.0.0/28")
		from.Pool = ipam.PoolNamed("may")
		from = api.stores(t, from)
		claim := ipam.Name{Namespace: "ns", Name: "x"}
		for name, c := range map[string]struct {
			request  ipam.Request
			recorded string
			want     string
		}{
			"a class that allows it":           {ipam.Request{Claim: claim, Class: "may"}, "", ""},
			"a class that does not":            {ipam.Request{Claim: claim, Class: "not"}, "", "IPClass not does not allow it (allowRetain): leave it Delete"},
			"a class that is not there":        {ipam.Request{Claim: claim, Class: "none"}, "", "IPClass none does not allow it (allowRetain): leave it Delete"},
			"a pool that allows it":            {ipam.Request{Claim: claim, Pool: ipam.PoolNamed("may")}, "", ""},
			"a pool that does not":             {ipam.Request{Claim: claim, Pool: ipam.PoolNamed("not")}, "", "pool not does not allow it (allowRetain): leave it Delete"},
			"the pool that its block is from":  {ipam.Request{Claim: claim}, from.Name.Name, ""},
			"one of which no record is known":  {ipam.Request{Claim: claim, Pool: ipam.PoolNamed("not")}, "none", "pool not does not allow it (allowRetain): leave it Delete"},
			"a class counts, not the block's":  {ipam.Request{Claim: claim, Class: "not"}, from.Name.Name, "IPClass not does not allow it (allowRetain): leave it Delete"},
			"the block's counts, not the name": {ipam.Request{Claim: claim, Pool: ipam.PoolNamed("not")}, from.Name.Name, ""},
		} {
			err := a.Catalog.MayRetain(c.request, c.recorded)
			policy, ok := errors.AsType[*ipam.PolicyError](err)
			if c.want == "" && err != nil || c.want != "" && (!ok || policy.Field != "spec.reclaimPolicy" || policy.Remedy != c.want) {
				t.Errorf("%s: got %v, want %q", name, err, c.want)
			}
		}
	})
}
