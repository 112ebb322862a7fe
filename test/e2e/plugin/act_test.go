package plugin

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	w.as(t, "").plays("create", nil)
	w.as(t, "alice").plays("create-tenant", nil)
}

// imports imports a table of which a row has no pool: it is refused as a whole, or the row skipped.
func (w *world) imports(t *testing.T) {
	admin := w.as(t, "")
	table := "kind,name,cidr\npool,imported,100.64.0.0/16\nclaim,inside,10.0.0.0/24\n"
	suite.Must(t, os.WriteFile(filepath.Join(admin.dir, "addresses.csv"), []byte(table), 0o600))
	for _, action := range []string{"", " --apply"} {
		admin.runs("kubectl ipam import csv $DIR/addresses.csv -n team-a" + action).ends(command.ExitUnhealthy).says("line 3").hides("line 2")
	}
	pool := &v1alpha1.IPPool{}
	if err := w.Get(t.Context(), client.ObjectKey{Name: "imported"}, pool); !apierrors.IsNotFound(err) {
		t.Errorf("reading the pool of a refused import: %v", err)
	}
	admin.runs("kubectl ipam import csv $DIR/addresses.csv -n team-a --skip-problems --apply").ends(command.ExitDone)
	suite.Must(t, w.Get(t.Context(), client.ObjectKey{Name: "imported"}, pool))
	w.Deleted(pool)
}

// pause pauses a pool and resumes it.
func (w *world) pause(t *testing.T) {
	w.as(t, "").plays("pause", map[string]func(){
		"kubectl ipam pause lab":  func() { w.phase("lab", v1alpha1.PoolPaused) },
		"kubectl ipam resume lab": func() { w.phase("lab", v1alpha1.PoolReady) },
	})
	w.as(t, "alice").plays("pause-tenant", nil)
}

// claim asks for blocks.
func (w *world) claim(t *testing.T) {
	w.as(t, "alice").plays("claim", map[string]func(){
		"kubectl ipam claim -n team-b --class subnets": func() {
			w.as(t, "").runs("kubectl ipam create pool few --cidr 203.0.113.0/28 --limit-blocks 1 --on-exhaustion Reject --wait").ends(command.ExitDone)
		},
	})
	w.as(t, "bob").runs("kubectl ipam claim -n team-b --name first --pool few --length 28").ends(command.ExitExhausted).says("no free /28")
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
	w.as(t, "").plays("explain", map[string]func(){"kubectl ipam explain lost -n team-a": w.waitingAddressClaim})
	own := build.Pool("own").In("team-a")
	w.Await("the status of own counts db", func(ctx context.Context) bool {
		return w.Get(ctx, client.ObjectKeyFromObject(own), own) == nil && own.Status.Capacity.Available == "239"
	})
	w.as(t, "alice").plays("explain-tenant", nil, "team-b")
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
