package plugin

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// check compares records, holders and pools with each other, in a healthy cluster.
func (w *world) check(t *testing.T) {
	w.as(t, "").plays("check", nil)
	w.as(t, "alice").plays("check-tenant", nil, "team-b")
}

// TestCheckFindsInconsistencies forges records, claims and pools while no operator runs and the
// administrator can write all of them.
func TestCheckFindsInconsistencies(t *testing.T) {
	w := &world{World: suite.Start(t, cluster.Options{Managers: 1, ClusterAPICRDs: true})}
	w.Namespace("team-a")
	w.Pools(
		build.Pool("p").CIDR("10.0.0.0/16").Obj(), build.Pool("q").CIDR("10.1.0.0/16").Obj(), build.Pool("child").Child("p", 24).Obj(),
		build.Pool("gone").CIDR("10.2.0.0/16").Obj(), build.Pool("six").CIDR("2001:db8::/32").Obj(), build.Pool("hosts").CIDR("10.3.0.0/24").Obj(),
	)
	for _, name := range []string{"overlapped", "lost", "other", "deleted"} {
		w.Created(build.Claim("team-a", name).Pool("p").Length(28).Obj())
	}
	w.Created(build.Claim("team-a", "homeless").Pool("gone").Length(28).Obj())
	for _, name := range []string{"bare", "machine"} { // the first has the first address
		claim := build.AddressClaim("team-a", name).Pool("hosts").Obj()
		w.Created(claim)
		w.Served(claim)
	}
	w.changeGateway(t)
	suite.Must(t, w.Managers[0].Stop())
	w.unprotect()
	w.forge()

	admin := w.as(t, "")
	admin.runs("kubectl ipam check").ends(command.ExitUnhealthy)
	admin.runs("kubectl ipam check --grace=0s --settle=0s --report $DIR/monday.json").ends(command.ExitUnhealthy)
	compared := admin.runs("kubectl ipam check --grace=0s --settle=0s -o wide --compare $DIR/monday.json").ends(command.ExitUnhealthy)
	var printed []string
	for line := range strings.Lines(compared.err) {
		if command, isCommand := strings.CutPrefix(line, "  kubectl ipam release"); isCommand {
			printed = append(printed, "kubectl ipam release"+strings.TrimRight(command, "\n")+" --yes")
		}
	}
	if len(printed) != 2 {
		t.Fatalf("got %q, want two commands", printed)
	}
	for _, line := range printed { // as they are printed: each releases the records that the check has found
		admin.runs(line + " --dry-run=server").ends(command.ExitDone).says("ipallocation.ipam.cadastre.dev/")
	}
	admin.runs(printed[0]).ends(command.ExitDone)
	admin.runs("kubectl ipam check --grace=0s --settle=0s -o name --compare $DIR/monday.json --release").ends(command.ExitUnhealthy)
	admin.runs("kubectl ipam check --grace=0s --settle=0s -o name").ends(command.ExitUnhealthy).hides("past-due-for-long").hides("unreadable").says("past-due-cooling")
	admin.matches("check-broken")
	w.stillThere("overlap", "orphan")
	if err := w.Get(t.Context(), client.ObjectKey{Namespace: "team-a", Name: "unreadable"}, &v1alpha1.IPClaim{}); err != nil {
		t.Errorf("the claim that has the name of a record which was released: %v", err)
	}
}

// changeGateway makes an address that a machine has the gateway of a pool, after two were handed out with the former
// gateway. Then it takes that back.
func (w *world) changeGateway(t *testing.T) {
	pool, admin := build.Pool("changed").CIDR("10.4.0.0/24").Network(24, "10.4.0.1").Obj(), w.as(t, "")
	w.Pools(pool)
	for _, name := range []string{"first", "second"} {
		claim := build.AddressClaim("team-a", name).Pool("changed").Obj()
		w.Created(claim)
		w.Served(claim)
	}
	suite.Must(t, w.Patch(t.Context(), pool, build.Merge(`{"spec":{"network":{"gateway":"10.4.0.2"}}}`)))
	admin.runs("kubectl ipam check").ends(command.ExitUnhealthy).says("GatewayHeld").says("10.4.0.2, which lies in").says("NetworkDiffersFromPool").says("10.4.0.1")
	suite.Must(t, w.Patch(t.Context(), pool, build.Merge(`{"spec":{"network":{"gateway":"10.4.0.1"}}}`)))
	admin.runs("kubectl ipam check").ends(command.ExitDone)
	for _, name := range []string{"first", "second"} {
		w.Deleted(build.AddressClaim("team-a", name).Obj())
	}
	w.Deleted(pool)
	w.Gone(pool, &v1alpha1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "ippool.changed"}})
}

// unprotect removes the policies that keep others than the operator from writing records.
func (w *world) unprotect() {
	w.Helper()
	for _, obj := range []client.Object{
		&admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "zz-cadastre-mutating-webhook-configuration"}},
		&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "cadastre-validating-webhook-configuration"}},
		&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "cadastre-allocations"}},
		&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "cadastre-filled-in"}},
	} {
		w.Deleted(obj)
	}
	w.Await("records can be forged", func(ctx context.Context) bool {
		probe := record("probe", "10.1.255.0/28", "q")
		err := w.Create(ctx, probe, client.DryRunAll)
		return err == nil || !apierrors.IsForbidden(err) && !apierrors.IsInternalError(err)
	})
}

// record returns an IPAllocation of a claim x that does not exist.
func record(name, cidr, pool string) *v1alpha1.IPAllocation {
	return &v1alpha1.IPAllocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name},
		Spec: v1alpha1.IPAllocationSpec{
			CIDR: cidr, IPFamily: v1alpha1.IPv4, PoolRef: &v1alpha1.RecordPoolReference{Kind: v1alpha1.PoolKindIPPool, Name: pool},
			ClaimRef: v1alpha1.ClaimReference{APIGroup: v1alpha1.GroupVersion.Group, Kind: "IPClaim", Name: "x"},
			Purpose:  v1alpha1.PurposeClaim, State: v1alpha1.AllocationBound,
		},
	}
}

// forge makes one object of every kind of fault.
func (w *world) forge() {
	w.Helper()
	past := metav1.NewTime(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))
	claim := &v1alpha1.IPClaim{}
	suite.Must(w, w.Get(w.Context(), client.ObjectKey{Namespace: "team-a", Name: "overlapped"}, claim))
	overlap := record("overlap", claim.Status.AllocatedCIDR, "p")
	outside := record("outside", "10.9.0.0/28", "q")
	retained, cooling := record("past-due-for-long", "10.1.1.0/28", "q"), record("past-due-cooling", "10.1.2.0/28", "q")
	retained.Spec.State, retained.Spec.ReleaseAfter = v1alpha1.AllocationRetained, &past
	cooling.Spec.State, cooling.Spec.ReleaseAfter = v1alpha1.AllocationCooling, &past
	unreadable := record("unreadable", "2001:DB8::/64", "six")
	unreadable.Spec.IPFamily = v1alpha1.IPv6
	w.Created(overlap, outside, retained, cooling, unreadable, record("orphan", "10.1.3.0/28", "q"), build.Claim("team-a", "unreadable").Pool("q").Length(28).Obj())

	suite.Must(w, w.Get(w.Context(), client.ObjectKey{Namespace: "team-a", Name: "lost"}, claim))
	w.force(&v1alpha1.IPAllocation{}, "team-a", claim.Spec.AllocationName)
	suite.Must(w, w.Get(w.Context(), client.ObjectKey{Namespace: "team-a", Name: "other"}, claim))
	claim.Status.AllocatedCIDR = "10.0.99.0/28"
	suite.Must(w, w.Update(w.Context(), claim))
	suite.Must(w, w.Get(w.Context(), client.ObjectKey{Namespace: "team-a", Name: "deleted"}, claim))
	w.Deleted(claim)
	w.force(&v1alpha1.IPAllocation{}, "cadastre-system", "ippool.child")
	w.force(&v1alpha1.IPPool{}, "", "gone")
	w.force(&ipamv1.IPAddressClaim{}, "team-a", "machine")
	w.force(&ipamv1.IPAddress{}, "team-a", "bare")
}

// force deletes an object in spite of its finalizers.
func (w *world) force(obj client.Object, namespace, name string) {
	w.Helper()
	key := client.ObjectKey{Namespace: namespace, Name: name}
	suite.Must(w, w.Get(w.Context(), key, obj))
	obj.SetFinalizers(nil)
	suite.Must(w, w.Update(w.Context(), obj))
	w.Deleted(obj)
	w.Gone(obj)
}

// stillThere expects records of the namespace team-a.
func (w *world) stillThere(names ...string) {
	w.Helper()
	for _, name := range names {
		if err := w.Get(w.Context(), client.ObjectKey{Namespace: "team-a", Name: name}, &v1alpha1.IPAllocation{}); err != nil {
			w.Error(err)
		}
	}
}

// TestCheckAcceptsHealthyClusterUnderLoad runs checks while claims and addresses come and go,
// and the leader is killed, twice.
func TestCheckAcceptsHealthyClusterUnderLoad(t *testing.T) {
	const grace = "5s"
	w := &world{World: suite.Start(t, cluster.Options{Managers: 2, ClusterAPICRDs: true, ManagerArgs: []string{"--orphan-grace=2s", "--leader-elect-lease-duration=3s"}})}
	w.Namespace("team-a")
	w.Pools(build.Pool("p").CIDR("10.0.0.0/16").Obj(), build.Pool("hosts").CIDR("10.1.0.0/20").Obj())
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	for worker := range 6 {
		working.Go(func() { w.comeAndGo(ctx, worker) })
	}
	accusedAtOneLook := 0
	admin := w.as(t, "")
	var killed *cluster.Manager
	for n := range 12 {
		switch n {
		case 2, 8:
			killed = w.Leader()
			suite.Must(t, killed.Kill())
		case 5, 11:
			if w.Leader() == killed {
				t.Error("no other replica leads")
			}
			suite.Must(t, killed.Start(t.Context()))
		}
		if admin.runs("kubectl ipam check --settle=0s --grace="+grace).code != command.ExitDone {
			accusedAtOneLook++
		}
		admin.runs("kubectl ipam check --settle=20s --grace=" + grace).ends(command.ExitDone)
	}
	stop()
	working.Wait()
	admin.runs("kubectl ipam check --grace=" + grace).ends(command.ExitDone)
	t.Logf("of 12 checks that looked once, %d found something that was under way", accusedAtOneLook)
}

// comeAndGo creates and deletes claims and addresses until ctx is done. A call that fails because a
// replica was killed while it answered is repeated under the next name.
func (w *world) comeAndGo(ctx context.Context, worker int) {
	for n := 0; ctx.Err() == nil; n++ {
		name := fmt.Sprintf("c-%d-%d", worker, n)
		objects := []client.Object{
			build.Claim("team-a", name).Pool("p").Length(28).Obj(),
			build.AddressClaim("team-a", name).Pool("hosts").Obj(),
		}
		for _, obj := range objects {
			if err := w.Create(ctx, obj); err != nil && !apierrors.IsInternalError(err) && ctx.Err() == nil {
				w.Errorf("creating %s: %v", name, err)
				return
			}
		}
		for _, obj := range objects {
			_ = w.Delete(ctx, obj)
		}
	}
}
