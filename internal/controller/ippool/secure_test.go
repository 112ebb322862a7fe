package ippool

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/authorize"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/replica"
	"github.com/cadastre-dev/cadastre/internal/testing/story"
)

// leftoverMark lets a writer die that has marked the record of a pool which stays.
func leftoverMark(e *pools) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/24").Obj())
	e.Reconciled("p").Ready()
	story.Edited(e.World, convert.Allocation(e.own("p")), func(r *v1alpha1.IPAllocation) { r.Spec.State = v1alpha1.AllocationReleasing })
	e.Reconciled("p").Ready()
	if own := e.own("p"); own.State != ipam.StateBound {
		e.t.Errorf("its record is %s, want Bound", own.State)
	}
}

// partlyFilledPool creates pools of which admission has written a part.
func partlyFilledPool(e *pools) {
	root := build.Pool("root").CIDR("10.0.0.0/24").Obj()
	child := build.Pool("sub").Child("root", 26).With(func(s *v1alpha1.IPPoolSpec) { s.IPFamily = v1alpha1.IPv4 }).Obj()
	for _, pool := range []*v1alpha1.IPPool{root, child} {
		pool.Finalizers = []string{v1alpha1.FinalizerPool}
		e.Created(pool)
		e.Reconciled(pool.Name).Ready()
		if spec := e.stored(pool.Name).Spec; spec.CIDR == "" || spec.IPFamily != v1alpha1.IPv4 {
			e.t.Errorf("the spec of %s states %q, %q", pool.Name, spec.CIDR, spec.IPFamily)
		}
	}
}

// rangesOutside gives a pool a CIDR that does not contain its ranges.
func rangesOutside(e *pools) {
	e.Applied(build.Pool("parent").CIDR("10.0.0.0/24").Obj())
	e.Created(build.Pool("sub").Child("parent", 26).Ranges("10.0.1.0-10.0.1.9").Obj())
	e.Reconciled("sub").NotReady(v1alpha1.ReasonInvalid).Saying("10.0.1.0")
}

// oldestChildFirst releases a block for which two pools wait.
func oldestChildFirst(e *pools) {
	e.Applied(build.Pool("parent").CIDR("10.0.0.0/24").Obj())
	e.Recorded(story.Block("a", "parent", "10.0.0.0/25"))
	e.Recorded(story.Block("b", "parent", "10.0.0.128/25"))
	e.Created(build.Pool("child-a").Child("parent", 25).Obj(), build.Pool("child-b").Child("parent", 25).Obj())
	e.Reconciled("child-a").NotReady(v1alpha1.ReasonPoolExhausted)
	e.Reconciled("child-b").NotReady(v1alpha1.ReasonPoolExhausted)
	e.Collected(story.Claim("a"))
	e.Reconciled("child-b").NotReady(v1alpha1.ReasonPoolExhausted)
	e.Reconciled("child-a").In(v1alpha1.PoolReady, "10.0.0.0/25").Ready()
}

// lostChildRecord removes the record of a child for whose block a younger child waits.
func lostChildRecord(e *pools) {
	e.Applied(build.Pool("parent").CIDR("10.0.0.0/24").Obj())
	e.Recorded(story.Block("a", "parent", "10.0.0.128/25"))
	e.Created(build.Pool("child-a").Child("parent", 25).Obj())
	e.Reconciled("child-a").In(v1alpha1.PoolReady, "10.0.0.0/25").Ready()
	e.Created(build.Pool("child-b").Child("parent", 25).Obj())
	e.Reconciled("child-b").NotReady(v1alpha1.ReasonPoolExhausted)
	e.Forced(convert.Allocation(e.own("child-a")))
	e.Reconciled("child-a").In(v1alpha1.PoolReady, "10.0.0.0/25").Ready()
}

// rightAskedAgain has pools of a namespace that name a pool of the platform: of a service account
// without the right to, of one with the right, of another user, and of an unknown user. Only those
// of service accounts are asked about again.
func rightAskedAgain(e *pools) {
	e.Applied(build.Pool("parent").CIDR("10.0.0.0/24").Obj())
	pools := map[string]*v1alpha1.LocalIPPool{}
	for _, name := range []string{"denied", "granted", "unknown", "user"} {
		pools[name] = build.Pool(name).Child("parent", 26).In(story.Team)
	}
	e.RequestedBy(pools["denied"], story.Deployer)
	e.RequestedBy(pools["granted"], story.Entitled)
	e.RequestedBy(pools["user"], "admin")
	for _, test := range []struct {
		name  string
		ready bool
		again time.Duration
	}{{"denied", false, time.Second}, {"granted", true, 0}, {"unknown", false, 0}, {"user", false, 0}} {
		pool := pools[test.name]
		e.Created(pool)
		pass := e.World.Reconciled(e.local(), pool).After(test.again)
		if got := meta.IsStatusConditionTrue(pool.Status.Conditions, v1alpha1.ConditionReady); got != test.ready {
			pass.Reason("") // fails with the existing reason
		}
	}
	want := "parent/" + string(e.stored("parent").UID)
	if got := story.Stored(e.World, pools["granted"]).Annotations[v1alpha1.AnnotationUseGranted]; got != want {
		e.t.Errorf("the right is noted as %q, want %q", got, want)
	}
}

// formerRequester has a pool served whose creator a former version has encrypted.
func formerRequester(e *pools) {
	e.Applied(build.Pool("parent").CIDR("10.0.0.0/24").Obj())
	child := build.Pool("sub").Child("parent", 26).Obj()
	child.Annotations = map[string]string{v1alpha1.AnnotationRequester: "v1.x.y"}
	e.Created(child)
	e.Reconciled("sub").Ready()
	if _, has := e.stored("sub").Annotations[v1alpha1.AnnotationRequester]; has {
		e.t.Error("the encrypted creator is still there")
	}
}

// grantedFails makes each call fail for a pool of a user who has the right.
func grantedFails(e *pools) {
	e.Applied(build.Pool("parent").CIDR("10.0.0.0/16").Obj())
	e.Failing(func(n int) story.Interruption {
		pool := build.Pool(numberedPool(n).Name).Child("parent", 26).In(story.Team)
		e.RequestedBy(pool, story.Entitled)
		e.Created(pool)
		return story.Interruption{By: e.local(), Object: pool, Check: func() { e.World.Reconciled(e.local(), pool).Ready() }}
	})
}

// rightUnknown has the API server not answer whether the creator of a pool has the right.
func rightUnknown(e *pools) {
	e.Applied(build.Pool("parent").CIDR("10.0.0.0/24").Obj())
	silent := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return errors.New("no answer")
		},
	})
	e.controller.Asker = authorize.NewAsker(authorize.NewRights(silent), e.K8s, e.Clock)
	child := build.Pool("sub").Child("parent", 26).In(story.Team)
	e.RequestedBy(child, story.Entitled)
	e.Created(child)
	e.World.Retried(e.local(), child).Wrote()
}

// limitedChild lets a pool exceed the limit of its project in its parent: it is tried again, as the
// time at which the project has less is unknown.
func limitedChild(e *pools) {
	e.Applied(build.Pool("parent").CIDR("10.0.0.0/24").Limit(1).Obj())
	e.Recorded(story.Block("a", "parent", "10.0.0.0/28"))
	pool := build.Pool("sub").Child("parent", 26).In(story.Team)
	e.RequestedBy(pool, story.Entitled)
	e.Created(pool)
	if again := e.World.Reconciled(e.local(), pool).NotReady(v1alpha1.ReasonLimitReached).RequeueAfter(); again <= 0 {
		e.t.Errorf("it is reconciled again after %s", again)
	}
}

// refusedPool lets a policy refuse the change of the pool.
func refusedPool(e *pools) {
	frozen := true
	e.controller.Client = interceptor.NewClient(e.K8s, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if frozen {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "ippools"}, obj.GetName(), errors.New("it is frozen"))
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
	})
	e.Created(build.Pool("p").CIDR("10.0.0.0/24").Obj())
	e.Retried("p").NotReady(v1alpha1.ReasonRecordRefused).Saying("it is frozen")
	frozen = false
	e.Reconciled("p").In(v1alpha1.PoolReady, "10.0.0.0/24").Ready()
}

// invalidPool lets the API server accept a pool that the operator cannot read.
func invalidPool(e *pools) {
	e.Created(build.Pool("p").CIDR("10.0.0.0/24").Ranges("10.0.1.0-10.0.1.9").Obj())
	e.Reconciled("p").In(v1alpha1.PoolPending, "").NotReady(v1alpha1.ReasonInvalid).Wrote("patch IPPool/status")
}

// ownRecord returns an own record of a pool.
func ownRecord(name, block string, pool ipam.Pool) ipam.Record {
	return ipam.Record{
		Name: ipam.Name{Namespace: story.System, Name: name}, UID: name, Block: netip.MustParsePrefix(block), Pool: pool.Home,
		Holder: convert.HolderOfPool(pool.Key), HolderUID: pool.Spec.UID, Purpose: ipam.PurposePool, State: ipam.StateBound,
	}
}

// newNodesScope returns the data of a pass over the pool nodes.
func newNodesScope(ranges string) *scope {
	obj := nodes(ranges)
	obj.UID = "nodes"
	pool, _ := convert.Pool(obj)
	return &scope{obj: obj, pool: pool, part: pool}
}

// TestFormerRecordIsReleasedOnce makes two passes before the view shows the release.
func TestFormerRecordIsReleasedOnce(t *testing.T) {
	s, released := newNodesScope("10.0.0.0/30"), 0
	c := attachReplica(replica.WithRecords(t, replica.Options{}, ownRecord("former", "10.0.0.0/29", s.pool)), &Controller{})
	for range 2 {
		err := c.releaseFormer(t.Context(), s, func(context.Context, ipam.Record) error { released++; return nil })
		if err != nil || released != 1 {
			t.Fatalf("released %d times, with %v", released, err)
		}
	}
}

// TestFailureToGiveUpIsReported gives the record of an edit a rival.
func TestFailureToGiveUpIsReported(t *testing.T) {
	s := newNodesScope("10.0.0.0/29")
	rival := s.pool
	rival.Key = ipam.PoolNamed("vips")
	broken := errors.New("broken")
	r := replica.WithRecords(t, replica.Options{Client: build.Before(fake.NewClientBuilder().Build(), func() error { return broken })},
		ownRecord("former", "10.0.0.0/30", s.pool), ownRecord("rival", "10.0.0.4/30", rival), ownRecord("lost", "10.0.0.0/29", s.pool))
	err := attachReplica(r, &Controller{}).securePart(t.Context(), s)
	if !errors.Is(err, broken) || s.retry != recheck {
		t.Errorf("got %v, and it is tried again after %s", err, s.retry)
	}
}

func TestSoonestIgnoresUnsetTimes(t *testing.T) {
	for _, test := range []struct {
		all  []time.Duration
		want time.Duration
	}{{nil, 0}, {[]time.Duration{0, 0}, 0}, {[]time.Duration{0, 2, 0}, 2}, {[]time.Duration{3, 0, 2}, 2}} {
		if got := shortestDelay(test.all...); got != test.want {
			t.Errorf("of %v it is %v, want %v", test.all, got, test.want)
		}
	}
}

// local reconciles LocalIPPools.
func (e *pools) local() reconcile.Reconciler {
	return reconcile.AsReconciler(e.K8s, poolReconciler[*v1alpha1.LocalIPPool]{e.controller})
}
