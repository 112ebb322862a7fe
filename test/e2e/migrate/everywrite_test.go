package migrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/yaml"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/migrate"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// TestImportSurvivesCrashAtEveryWrite kills an import, and the rollback after it, at each of its writes: before
// the API server has it, and after.
func TestImportSurvivesCrashAtEveryWrite(t *testing.T) {
	w := start(t)
	suite.Must(t, w.InstallMetal3(t.Context()))
	w.Namespace("site")
	pool := w.metal3Pool("site", "machines", "10.0.0.10", "10.0.0.20", nil)
	w.handOut(pool, addrs("m", "10.0.0.10", 1))
	w.Created(
		build.AddressClaim("site", "late").From(metal3Group, "IPPool", "machines").Obj(),
		&ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: "site", Name: "by-hand"}, Spec: ipamv1.IPAddressSpec{
			Address: "10.0.0.12", Prefix: new(int32(24)), ClaimRef: ipamv1.IPAddressClaimReference{Name: "nobody"},
			PoolRef: ipamv1.IPPoolReference{APIGroup: metal3Group, Kind: "IPPool", Name: "machines"},
		}})
	w.witness()
	step := int64(1)
	if testing.Short() {
		step = 3
	}
	made := 0
	for _, before := range []bool{true, false} {
		for i, more := int64(1), true; more; i += step {
			more = w.killedAt(i, before, &made)
		}
	}
	if t.Logf("%d claims were created again between", made); made == 0 {
		t.Error("no import was killed between the deletion of the claim and its creation")
	}
	w.goneMeanwhile()
	w.withDocumentedRights()
}

// goneMeanwhile kills an import when all is moved and its journal still exists. A claim that goes
// before the import is run again is not made again.
func (w *world) goneMeanwhile() {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	defer cancel()
	crashing := interceptor.NewClient(w.WithWatch, interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			if _, isJournal := obj.(*corev1.ConfigMap); isJournal {
				cancel()
				return errCrash
			}
			return c.Delete(ctx, obj, opts...)
		},
	})
	var out bytes.Buffer
	o := migrate.Options{Action: migrate.Apply, Settle: time.Millisecond, Out: &out}
	if err := migrate.Metal3(ctx, crashing, o); !errors.Is(err, migrate.ErrInterrupted) {
		w.Fatalf("with a journal that cannot be deleted: %v", err)
	}
	key := client.ObjectKey{Namespace: "site", Name: "m-0"}
	claim, address := &ipamv1.IPAddressClaim{}, &ipamv1.IPAddress{}
	for _, obj := range []client.Object{claim, address} {
		suite.Must(w, w.Get(w.Context(), key, obj))
	}
	for _, obj := range []client.Object{claim, address} {
		suite.Must(w, client.IgnoreNotFound(w.Patch(w.Context(), obj, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))))
		w.Deleted(obj)
		w.Gone(obj)
	}
	suite.Must(w, migrate.Metal3(w.Context(), w.WithWatch, o))
	if err := w.Get(w.Context(), key, claim); !apierrors.IsNotFound(err) {
		w.Errorf("a claim that was gone was made again: %v", err)
	}
	w.noJournals()
	o.Action = migrate.Rollback
	suite.Must(w, migrate.Metal3(w.Context(), w.WithWatch, o))
}

// withDocumentedRights imports and rolls back as a user with the role in docs/import.md.
func (w *world) withDocumentedRights() {
	w.Helper()
	text, err := os.ReadFile("../../../docs/import.md")
	suite.Must(w, err)
	role := &rbacv1.ClusterRole{}
	for block := range bytes.SplitSeq(text, []byte("```")) {
		if manifest, ok := bytes.CutPrefix(block, []byte("yaml\n")); ok && bytes.Contains(manifest, []byte("kind: ClusterRole\n")) {
			suite.Must(w, yaml.UnmarshalStrict(manifest, role))
		}
	}
	w.Created(role, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "mover"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "mover"}},
	})
	mover := w.As("mover")
	for _, action := range []migrate.Action{migrate.Apply, migrate.Rollback} {
		var out bytes.Buffer
		if err := migrate.Metal3(w.Context(), mover, migrate.Options{Action: action, Settle: time.Millisecond, Out: &out}); err != nil {
			w.Errorf("as a user with the documented rights: %v\n%s", err, out.String())
		}
	}
}

// killedAt kills an import at a write, and has the infrastructure provider create the
// claim again that is missing then; then it does the same with the rollback. It reports
// whether there was such a write.
func (w *world) killedAt(limit int64, before bool, made *int) (wasKilled bool) {
	w.Helper()
	held := map[client.ObjectKey]string{{Namespace: "site", Name: "m-0"}: "10.0.0.10"}
	for _, action := range []migrate.Action{migrate.Apply, migrate.Rollback} {
		what := fmt.Sprintf("action %d killed at write %d, before %t", action, limit, before)
		ctx, cancel := context.WithCancel(w.Context())
		var out bytes.Buffer
		o := migrate.Options{Action: action, Settle: time.Millisecond, Out: &out}
		err := migrate.Metal3(ctx, w.crashing(limit, before, cancel), o)
		cancel()
		if wasKilled = wasKilled || err != nil; err != nil && !errors.Is(err, migrate.ErrInterrupted) {
			w.Fatalf("%s: %v", what, err)
		}
		owner := w.madeAnew(action)
		if owner != "" {
			*made++
		}
		if action == migrate.Apply {
			w.latePatch()
		}
		if err := migrate.Metal3(w.Context(), w.WithWatch, o); err != nil {
			w.Fatalf("%s, and run again: %v\n%s", what, err, out.String())
		}
		claim, byHand := &ipamv1.IPAddressClaim{}, &ipamv1.IPAddress{}
		suite.Must(w, w.Get(w.Context(), client.ObjectKey{Namespace: "site", Name: "m-0"}, claim))
		suite.Must(w, w.Get(w.Context(), client.ObjectKey{Namespace: "site", Name: "by-hand"}, byHand))
		isOurs := action == migrate.Apply
		if (claim.Spec.PoolRef.APIGroup != metal3Group) != isOurs || (byHand.Spec.PoolRef.APIGroup != metal3Group) != isOurs || byHand.Spec.Address != "10.0.0.12" {
			w.Fatalf("%s: the claim names %v, the IPAddress of no claim %v with %s", what, claim.Spec.PoolRef, byHand.Spec.PoolRef, byHand.Spec.Address)
		}
		if owner != "" && claim.Labels["owner"] != owner {
			w.Fatalf("%s: the claim has the labels %v, want those of the one that was created last", what, claim.Labels)
		}
		if finalizer := map[migrate.Action]string{migrate.Apply: metal3Claim, migrate.Rollback: v1alpha1.FinalizerRelease}[action]; slices.Contains(claim.Finalizers, finalizer) {
			w.Fatalf("%s: the claim has the finalizer %s", what, finalizer)
		}
		w.keptAddresses(held)
		w.noJournals()
	}
	return wasKilled
}

// latePatch puts Metal3's finalizer on a claim that is moved already, as its provider does that has
// listed the former claim.
func (w *world) latePatch() {
	w.Helper()
	claim := &ipamv1.IPAddressClaim{}
	suite.Must(w, client.IgnoreNotFound(w.Get(w.Context(), client.ObjectKey{Namespace: "site", Name: "m-0"}, claim)))
	if claim.Spec.PoolRef.APIGroup != v1alpha1.GroupVersion.Group {
		return
	}
	before := claim.DeepCopy()
	controllerutil.AddFinalizer(claim, metal3Claim)
	suite.Must(w, w.Patch(w.Context(), claim, client.MergeFrom(before)))
}

// madeAnew creates the claim again that an import has just deleted, from the pool of which
// the infrastructure provider knows.
func (w *world) madeAnew(action migrate.Action) (owner string) {
	w.Helper()
	key := client.ObjectKey{Namespace: "site", Name: "m-0"}
	if err := w.Get(w.Context(), key, &ipamv1.IPAddressClaim{}); !apierrors.IsNotFound(err) {
		return ""
	}
	owner = metav1.Now().Format("150405.000000000")
	claim := build.AddressClaim(key.Namespace, key.Name).From(metal3Group, "IPPool", "machines").Label("owner", owner)
	if action == migrate.Rollback {
		claim.From("ipam.cadastre.dev", "LocalIPPool", "machines-cadastre")
	}
	w.Created(claim.Obj())
	return owner
}
