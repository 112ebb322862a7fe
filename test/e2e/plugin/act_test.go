package plugin

import (
	"bytes"
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
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
	admin.runs("kubectl ipam create class hosts --length 32").ends(command.ExitConflict)
	admin.runs("kubectl ipam create class wrong --length 40 --min-length 28 --max-length 20").ends(command.ExitUsage)
	admin.runs("kubectl ipam create pool wrong --cidr 10.0.0.1/8").ends(command.ExitUsage)
	admin.runs("kubectl ipam create pool none --length x").ends(command.ExitUsage)
	admin.runs("kubectl ipam create pool none --local --project team-a").ends(command.ExitUsage)
	admin.runs("kubectl ipam create pool team-c --parent none --length 20 --wait=3s").ends(command.ExitTimedOut)
	admin.runs("kubectl ipam create vlan").ends(command.ExitUsage)
	admin.matches("create")
	alice := w.as(t, "alice")
	alice.runs("kubectl ipam create pool mine --cidr 192.168.0.0/16 --local -n team-a")
	alice.runs("kubectl ipam create pool more --cidr 172.30.0.0/16").ends(command.ExitForbidden)
	alice.matches("create-tenant")
}

// pause pauses a pool and resumes it.
func (w *world) pause(t *testing.T) {
	admin := w.as(t, "")
	admin.runs("kubectl ipam pause lab --dry-run")
	admin.runs("kubectl ipam pause lab")
	w.phase(t, "lab", v1alpha1.PoolPaused)
	admin.runs("kubectl ipam pause lab")
	admin.runs("kubectl ipam claim --pool lab --length 28 --name rests -n team-b").ends(command.ExitExhausted)
	admin.runs("kubectl ipam resume lab --dry-run=client")
	admin.runs("kubectl ipam resume lab --dry-run=client -o jsonpath={.metadata.annotations}").hides("paused")
	admin.runs("kubectl ipam resume lab")
	w.phase(t, "lab", v1alpha1.PoolReady)
	admin.runs("kubectl ipam resume lab")
	admin.runs("kubectl ipam claim --pool lab --length 28 --name rests -n team-b --wait=20s -q").ends(command.ExitDone)
	admin.runs("kubectl ipam pause none").ends(command.ExitNotFound)
	admin.runs("kubectl ipam pause vlan/7").ends(command.ExitUsage)
	admin.runs("kubectl ipam release rests -n team-b --yes").ends(command.ExitDone)
	admin.matches("pause")
	alice := w.as(t, "alice")
	alice.runs("kubectl ipam pause lab").ends(command.ExitForbidden)
	alice.runs("kubectl ipam pause own -n team-a")
	alice.runs("kubectl ipam resume localippool/own -n team-a")
	alice.matches("pause-tenant")
}

// phase waits until a pool has a phase, so that the manager has seen the earlier changes.
func (w *world) phase(t *testing.T, name string, phase v1alpha1.PoolPhase) {
	t.Helper()
	pool := &v1alpha1.IPPool{}
	w.For(t).Await(name+" is "+string(phase), func(ctx context.Context) bool {
		return w.Get(ctx, client.ObjectKey{Name: name}, pool) == nil && pool.Status.Phase == phase
	})
}

// claim asks for blocks.
func (w *world) claim(t *testing.T) {
	alice := w.as(t, "alice")
	alice.runs("kubectl ipam claim -n team-a --dry-run")
	alice.runs("kubectl ipam claim -n team-a --name web --class subnets --length 26")
	alice.runs("kubectl ipam claim -n team-a --name web --class subnets --length 26 -q")
	alice.runs("kubectl ipam claim -n team-a --name web").ends(command.ExitDone)
	alice.runs("kubectl ipam claim -n team-a --name web --length 27").ends(command.ExitConflict)
	alice.runs("kubectl ipam claim -n team-a --name web --pool own").ends(command.ExitConflict)
	alice.runs("kubectl ipam claim -n team-a --name db --pool own --cidr 172.16.0.77 -o wide")
	alice.runs("kubectl ipam claim -n team-a --name db --pool own --cidr 172.16.0.77 -o name")
	alice.runs("kubectl ipam claim -n team-a --name db --pool own --cidr 172.16.0.77 -o jsonpath={.status.address}")
	alice.runs("kubectl ipam claim -n team-a --name db-2 --pool own --cidr 172.16.0.77").ends(command.ExitConflict)
	alice.runs("kubectl ipam claim -n team-a --name plain --class subnets --dry-run=client -o yaml")
	alice.runs("kubectl ipam claim -n team-a --name host --pool nodes -o wide")
	alice.runs("kubectl ipam claim -n team-a --name extra --pool vips --length 31").ends(command.ExitExhausted)
	alice.runs("kubectl ipam claim -n team-a --name extra --pool vips --length 31 --wait=100ms").ends(command.ExitTimedOut)
	alice.runs("kubectl ipam claim -n team-a --name lost --class none").ends(command.ExitNotFound)
	alice.runs("kubectl ipam claim -n team-a --name wrong --cidr 10.0.0.1/24 --length 99").ends(command.ExitUsage)
	alice.runs("kubectl ipam claim -n team-a --name wrong --cidr 10.0.0.1/24").ends(command.ExitUsage)
	alice.runs("kubectl ipam claim -n team-a --class subnets --pool own").ends(command.ExitUsage)
	alice.runs("kubectl ipam claim -n team-a -q -o yaml").ends(command.ExitUsage)
	alice.runs("kubectl ipam claim -n team-b --class subnets").ends(command.ExitForbidden)
	w.as(t, "").runs("kubectl ipam create pool few --cidr 203.0.113.0/28 --limit-blocks 1 --on-exhaustion Reject --wait").ends(command.ExitDone)
	alice.runs("kubectl ipam claim -n team-a --name first --pool few --length 29").ends(command.ExitDone)
	alice.runs("kubectl ipam claim -n team-a --name second --pool few --length 30").ends(command.ExitLimit)
	alice.runs("kubectl ipam claim -n team-a --name second --pool few --length 29 --dry-run").ends(command.ExitLimit)
	w.as(t, "bob").runs("kubectl ipam claim -n team-b --name first --pool few --length 28").ends(command.ExitExhausted).says("no free /28")
	alice.matches("claim")
}

// interrupted stops waiting for a claim, as ctrl-C does.
func (w *world) interrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	errs := &notify{of: "waiting for", then: cancel}
	args := []string{"claim", "-n", "team-a", "--name", "stays", "--pool", "vips", "--length", "31", "--wait", "--as=alice", "--kubeconfig=" + w.Kubeconfig()}
	code := app.Run(ctx, args, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: errs})
	if said := errs.String(); code != command.ExitError || !strings.Contains(said, "interrupted: IPClaim stays stays and waits") {
		t.Errorf("ended with code %d and the output:\n%s", code, said)
	}
	alice := w.as(t, "alice")
	alice.runs("kubectl ipam release stays -n team-a --yes").ends(command.ExitDone)
}

// notify is a buffer that calls a function once something is written to it.
type notify struct {
	bytes.Buffer
	of   string
	then func()
}

func (n *notify) Write(text []byte) (int, error) {
	if bytes.Contains(text, []byte(n.of)) {
		n.then()
	}
	return n.Buffer.Write(text)
}

// explain shows why claims wait, and where blocks came from.
func (w *world) explain(t *testing.T) {
	admin := w.as(t, "")
	admin.runs("kubectl ipam explain vip-2 -n team-b")
	admin.runs("kubectl ipam explain vip-2 -n team-a -o yaml")
	admin.runs("kubectl ipam explain apps -n team-a")
	admin.runs("kubectl ipam explain machine-0 -n team-a")
	admin.runs("kubectl ipam explain lost -n team-a")
	w.waitingAddressClaim()
	admin.runs("kubectl ipam explain machine-2 -n team-a")
	admin.runs("kubectl ipam explain none -n team-a").ends(command.ExitNotFound)
	admin.runs("kubectl ipam explain none -n team-a -k ipaddressclaim").ends(command.ExitNotFound)
	admin.runs("kubectl ipam explain ippool/core").ends(command.ExitUsage)
	admin.matches("explain")
	alice := w.as(t, "alice")
	alice.runs("kubectl ipam explain vip-2 -n team-a").hides("team-b")
	alice.runs("kubectl ipam claim -n team-a --name large --pool own --length 24").ends(command.ExitExhausted)
	alice.runs("kubectl ipam explain large -n team-a")
	alice.runs("kubectl ipam release large -n team-a --yes").ends(command.ExitDone)
	alice.runs("kubectl ipam explain private -n team-a")
	alice.runs("kubectl ipam explain vip-2 -n team-b").ends(command.ExitForbidden)
	alice.matches("explain-tenant")
}

// release gives blocks back.
func (w *world) release(t *testing.T) {
	record := w.recordOf("team-a", "keep")
	alice := w.as(t, "alice")
	alice.runs("kubectl ipam release web -n team-a").ends(command.ExitUsage)
	alice.runs("kubectl ipam release web -n team-a --dry-run")
	alice.runs("kubectl ipam release web -n team-a --yes --wait=20s")
	alice.runs("kubectl ipam release web -n team-a --yes").ends(command.ExitNotFound)
	alice.runs("kubectl ipam release extra -n team-a --yes --wait=20s")
	alice.runs("kubectl ipam release apps -n team-a --dry-run=client -o yaml")
	w.as(t, "").runs("kubectl ipam claim -n team-a --name kept --class subnets --length 28 --reclaim-policy Retain").ends(command.ExitDone)
	alice.runs("kubectl ipam release kept -n team-a --yes --wait=20s").says("its block is retained as ipallocation/kept-")
	w.Created(build.Claim("team-a", "used").Class("subnets").Length(28).Finalizer("example.com/vm").Obj())
	alice.runs("kubectl ipam release used -n team-a --yes --wait=1s").ends(command.ExitTimedOut)
	w.withoutFinalizers("team-a", "used")
	alice.runs("kubectl ipam release ippool/core -n team-a").ends(command.ExitUsage)
	alice.runs("kubectl ipam release " + record + " -n team-a --yes").ends(command.ExitForbidden)
	alice.matches("release-tenant")
	admin := w.as(t, "")
	admin.runs("kubectl ipam release " + record + " -n team-a --yes --wait=20s")
	admin.runs("kubectl ipam release " + w.recordOf("team-a", "apps") + " -n team-a --yes").ends(command.ExitConflict)
	admin.runs("kubectl ipam release ipallocation/ippool.core -n cadastre-system --yes").ends(command.ExitConflict)
	w.ownedAddressClaim()
	admin.runs("kubectl ipam release ipaddressclaim/machine-1 -n team-a --yes").ends(command.ExitConflict)
	admin.runs("kubectl ipam release ipaddressclaim/machine-1 -n team-a --yes --force --wait=20s")
	admin.matches("release")
}

// withoutFinalizers removes all finalizers from a claim.
func (w *world) withoutFinalizers(namespace, name string) {
	w.Helper()
	claim := build.Claim(namespace, name).Obj()
	suite.Must(w, w.Patch(w.Context(), claim, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
}

// waitingAddressClaim makes an IPAddressClaim for which there is no address.
func (w *world) waitingAddressClaim() {
	w.Helper()
	claim := build.AddressClaim("team-a", "machine-2").Pool("vips").Cluster("prod").Obj()
	w.Created(claim)
	w.Await("machine-2 waits", func(ctx context.Context) bool {
		err := w.Get(ctx, client.ObjectKeyFromObject(claim), claim)
		ready := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ConditionReady)
		return err == nil && ready != nil && ready.Reason == v1alpha1.ReasonPoolExhausted
	})
}

// recordOf returns the name of the allocation whose holder is an IPClaim.
func (w *world) recordOf(namespace, holder string) string {
	w.Helper()
	records := &v1alpha1.IPAllocationList{}
	suite.Must(w, w.List(w.Context(), records, client.InNamespace(namespace)))
	for i := range records.Items {
		if records.Items[i].Spec.ClaimRef.Name == holder {
			return records.Items[i].Name
		}
	}
	w.Fatalf("there is no allocation of %s", holder)
	return ""
}

// ownedAddressClaim makes an IPAddressClaim that a machine owns.
func (w *world) ownedAddressClaim() {
	w.Helper()
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "machine-1"}}
	w.Created(owner)
	claim := build.AddressClaim("team-a", "machine-1").Pool("nodes").Cluster("prod").Obj()
	claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}
	w.Created(claim)
	w.Served(claim)
}
