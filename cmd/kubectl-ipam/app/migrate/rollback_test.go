package migrate

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// left holds the objects that a rollback finds of a holder that was not imported: its record, and
// the holder if it exists.
type left struct {
	record *v1alpha1.IPAllocation
	holder client.Object
	// releasedAfter is the time after which the operator releases the record; 0: never.
	releasedAfter time.Duration
}

// recordOf returns the record of a holder of a block of a pool.
func recordOf(kind, name string, pool v1alpha1.Pool, cidr string) *v1alpha1.IPAllocation {
	record := &v1alpha1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name + "-12345678"}}
	record.Spec = v1alpha1.IPAllocationSpec{CIDR: cidr, State: v1alpha1.AllocationBound}
	record.Spec.PoolRef = &v1alpha1.RecordPoolReference{Kind: pool.PoolKind(), Name: pool.GetName()}
	record.Spec.ClaimRef.Kind, record.Spec.ClaimRef.Name = kind, name
	return record
}

// deleting returns an object that was deleted, and that a finalizer keeps.
func deleting[T client.Object](obj T) T {
	obj.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1_800_000_000, 0)})
	obj.SetFinalizers([]string{"example.com/in-use"})
	return obj
}

// rollBack runs a rollback on an API server that has a pool of ours, and then other objects, beside an operator that
// releases the rest after a while. It expects that the pool is deleted, or that the rollback is refused
// with a text.
func rollBack(t *testing.T, do importer, l left, refused string, objects ...client.Object) {
	t.Helper()
	scheme := command.Scheme()
	for _, kind := range []schema.GroupVersionKind{metal3Kind("IPPool"), metal3Kind("IPAddress"), {Group: clusterGroup, Version: addressVersion, Kind: "Cluster"}} {
		scheme.AddKnownTypeWithName(kind, &unstructured.Unstructured{})
		scheme.AddKnownTypeWithName(kind.GroupVersion().WithKind(kind.Kind+"List"), &unstructured.UnstructuredList{})
	}
	pool := objects[0]
	objects = append(objects, l.record)
	if l.holder != nil {
		objects = append(objects, l.holder)
	}
	cluster := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	if l.releasedAfter > 0 {
		time.AfterFunc(l.releasedAfter, func() {
			if err := cluster.Delete(context.Background(), l.record.DeepCopy()); err != nil {
				t.Error(err)
			}
		})
	}
	var out bytes.Buffer
	err := do(t.Context(), cluster, Options{Action: Rollback, Out: &out, Timeout: time.Minute, Namespace: "team"})
	isGone := apierrors.IsNotFound(cluster.Get(t.Context(), keyOf(pool), pool))
	if isRefused := refused != ""; isRefused == (err == nil) || isRefused == isGone {
		t.Errorf("got %v, and the pool is gone: %t: %s", err, isGone, out.String())
	}
	if refused != "" && !strings.Contains(out.String()+fmt.Sprint(err), refused) {
		t.Errorf("got %v:\n%s\nwant %q", err, out.String(), refused)
	}
}

// TestRollbackWaitsForPendingReleases uses a pool that was imported, with a block in it that was
// not.
func TestRollbackWaitsForPendingReleases(t *testing.T) {
	lab := build.Pool("lab").CIDR("10.0.0.0/24").Obj()
	lab.Labels = map[string]string{labelImport: "csv"}
	recordIn := func(state v1alpha1.AllocationState) *v1alpha1.IPAllocation {
		record := recordOf("IPClaim", "fresh", lab, "10.0.0.9/32")
		record.Spec.State = state
		return record
	}
	fresh := func() *v1alpha1.IPClaim { return build.Claim("team", "fresh").Pool("lab").Obj() }
	for name, test := range map[string]struct {
		left
		refused string
	}{
		"its claim is gone":             {left{recordIn(v1alpha1.AllocationBound), nil, 3 * time.Second}, ""},
		"its claim is being deleted":    {left{recordIn(v1alpha1.AllocationBound), deleting(fresh()), 3 * time.Second}, ""},
		"it is never released":          {left{recordIn(v1alpha1.AllocationBound), nil, 0}, "1 object (IPAllocation team/fresh-12345678): not released by the operator"},
		"its claim exists":              {left{recordIn(v1alpha1.AllocationBound), fresh(), 3 * time.Second}, "10.0.0.9/32 was claimed after the import: delete it"},
		"its block is retained":         {left{recordIn(v1alpha1.AllocationRetained), nil, 3 * time.Second}, "10.0.0.9/32 is retained, and its claim is gone: delete the IPAllocation"},
		"its block cools down":          {left{recordIn(v1alpha1.AllocationCooling), nil, 3 * time.Second}, "wait until the IPAllocation is gone"},
		"its retained block is deleted": {left{deleting(recordIn(v1alpha1.AllocationRetained)), nil, 0}, "1 object (IPAllocation team/fresh-12345678): not released by the operator"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				do := func(ctx context.Context, c client.Client, o Options) error {
					return CSV(ctx, c, o, strings.NewReader("kind,name,cidr\npool,lab,10.0.0.0/24\n"))
				}
				rollBack(t, do, test.left, test.refused, lab.DeepCopy())
			})
		})
	}
}

// TestMetal3RollbackWaitsForPendingReleases uses an IPAddressClaim that was not imported.
func TestMetal3RollbackWaitsForPendingReleases(t *testing.T) {
	ours := build.Pool("hosts-cadastre").CIDR("10.0.0.0/24").In("team")
	ours.Labels = map[string]string{labelImport: importMetal3}
	ours.Annotations = map[string]string{annotationOrigin: origin{Pool: "hosts"}.text()}
	fresh := func() *ipamv1.IPAddressClaim {
		return build.AddressClaim("team", "fresh").From(v1alpha1.GroupVersion.Group, "LocalIPPool", "hosts-cadastre").Obj()
	}
	for name, test := range map[string]struct {
		holder  client.Object
		refused string
	}{
		"its claim is gone":          {nil, ""},
		"its claim is being deleted": {deleting(fresh()), "1 object (IPAddressClaim team/fresh): not released by the operator"},
		"its claim exists":           {fresh(), "it was claimed after the import: delete it"},
		"its address is being deleted": {deleting(&ipamv1.IPAddress{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "fresh"},
			Spec:       ipamv1.IPAddressSpec{Address: "10.0.0.9", PoolRef: fresh().Spec.PoolRef},
		}), "1 object (IPAddress team/fresh): not released by the operator"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := left{recordOf(kindClaim, "fresh", ours, "10.0.0.9/32"), test.holder, 3 * time.Second}
				rollBack(t, Metal3, l, test.refused, ours.DeepCopy(), objects(t, metal3Pool)[0])
			})
		})
	}
}
