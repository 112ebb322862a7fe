package migrate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/authorize"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/testing/replica"
	"github.com/cadastre-dev/cadastre/webhooks"
)

// admitting implements a cluster whose creates of pools and claims go through the operator's
// webhooks. A record is seen at once.
type admitting struct {
	client.WithWatch
	parts replica.Replica
	hooks webhook.Server
	made  atomic.Int64
}

// newAdmitting returns one with the namespaces of clusterWith, and nothing else.
func newAdmitting(t *testing.T) *admitting {
	t.Helper()
	a := &admitting{hooks: webhook.NewServer(webhook.Options{})}
	a.WithWatch = interceptor.NewClient(clusterWith(""), interceptor.Funcs{Create: a.create, Delete: a.delete})
	a.parts = replica.New(replica.Options{
		Ledger: ledger.New(ledger.Options{Clock: clock.RealClock{}, Silence: time.Minute, Random: rand.New(rand.NewPCG(1, 2))}),
		Client: a, Namespace: "system",
	})
	t.Cleanup(a.parts.Allocator.Close)
	a.parts.Ledger.Load(nil, nil)
	webhooks.Setup(stubManager{admitting: a}, webhooks.Options{
		Ledger: a.parts.Ledger, Catalog: a.parts.Catalog, Queue: a.parts.Queue, Allocator: a.parts.Allocator, Metrics: a.parts.Metrics, History: a.parts.History,
		Live: a, Rights: authorize.NewRights(a),
	})
	return a
}

// stubManager implements the manager with which webhooks are registered.
type stubManager struct {
	manager.Manager
	admitting *admitting
}

func (m stubManager) GetScheme() *runtime.Scheme       { return m.admitting.Scheme() }
func (m stubManager) GetWebhookServer() webhook.Server { return m.admitting.hooks }
func (m stubManager) GetCache() cache.Cache            { return stubCache{Reader: m.admitting} }

type stubCache struct {
	client.Reader
	cache.Informers
}

// create creates an object as an API server does, as far as the tests need it.
func (a *admitting) create(ctx context.Context, store client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
	obj.SetUID(types.UID(fmt.Sprint("uid-", a.made.Add(1))))
	switch obj := obj.(type) {
	case *authorizationv1.SubjectAccessReview:
		obj.Status.Allowed = true
		return nil
	case *v1alpha1.IPAllocation:
		if err := store.Create(ctx, obj, opts...); err != nil {
			return err
		}
		record, invalid := convert.Record(obj)
		if invalid != nil {
			return invalid
		}
		a.parts.Ledger.PutRecord(record)
		return nil
	case *v1alpha1.IPPool:
		if err := a.admit(ctx, "ippool", obj); err != nil {
			return err
		}
		obj.Status.Phase = v1alpha1.PoolReady // as its controller does
		if err := store.Create(ctx, obj, opts...); err != nil {
			return err
		}
		a.parts.Catalog.RecordObject(obj)
		return nil
	case *v1alpha1.IPClaim:
		if err := a.admit(ctx, "ipclaim", obj); err != nil {
			return err
		}
	}
	return store.Create(ctx, obj, opts...)
}

// delete deletes an object, and shows the ledger the rest.
func (a *admitting) delete(ctx context.Context, store client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
	if err := store.Delete(ctx, obj, opts...); err != nil {
		return err
	}
	there, err := readExisting(ctx, a)
	a.parts.Ledger.Load(there.snapshot.Records, there.snapshot.Unreadable)
	return err
}

// admit calls the webhook, and edits the object as it answers.
func (a *admitting) admit(ctx context.Context, resource string, obj client.Object) error {
	raw, err := json.Marshal(obj)
	if err != nil {
		return err
	}
	body, err := json.Marshal(admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{
		UID: "1", Operation: admissionv1.Create, Namespace: obj.GetNamespace(), Object: runtime.RawExtension{Raw: raw}, DryRun: new(false),
	}})
	if err != nil {
		return err
	}
	answered := httptest.NewRecorder()
	a.hooks.WebhookMux().ServeHTTP(answered, httptest.NewRequestWithContext(ctx, http.MethodPost, "/mutate-ipam-cadastre-dev-v1alpha1-"+resource, bytes.NewReader(body)))
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(answered.Body.Bytes(), &review); err != nil {
		return fmt.Errorf("%d %s: %w", answered.Code, answered.Body, err)
	}
	if !review.Response.Allowed {
		return &apierrors.StatusError{ErrStatus: *review.Response.Result}
	}
	if len(review.Response.Patch) == 0 {
		return nil
	}
	patch, err := jsonpatch.DecodePatch(review.Response.Patch)
	if err != nil {
		return err
	}
	edited, err := patch.Apply(raw)
	if err != nil {
		return err
	}
	return json.Unmarshal(edited, obj)
}

// randomRows returns rows of a small plan that are often in each other's way.
func randomRows(dice *rand.Rand) []string {
	oneOf := func(texts ...string) string { return texts[dice.IntN(len(texts))] }
	addr := func() string { return fmt.Sprintf("10.0.%d.%d", dice.IntN(4), dice.IntN(8)*32+dice.IntN(4)) }
	cidr := func(shortest, longest int) string {
		bits := shortest + dice.IntN(longest-shortest+1)
		return fmt.Sprintf("10.0.%d.%d/%d", dice.IntN(4)&^(1<<max(0, 24-bits)-1), dice.IntN(256)&^(1<<min(8, 32-bits)-1), bits)
	}
	var rows []string
	for i := range 1 + dice.IntN(6) {
		network, gateway := oneOf("", "", "24", "25"), ""
		if network != "" {
			gateway = oneOf("", addr())
		}
		rows = append(rows, fmt.Sprintf("pool,p%d,%s,,%s,,%s,%s,%s", i, cidr(21, 27), oneOf("", "", "", "p0", "p1", "none"), oneOf("", "", "", "red", "Red!"), network, gateway))
	}
	for range dice.IntN(4) {
		rows = append(rows, fmt.Sprintf("reserved,,%s,%s,,,,,", oneOf(addr(), cidr(26, 30)), oneOf("", "", "p0", "p3")))
	}
	for range dice.IntN(10) {
		rows = append(rows, fmt.Sprintf("claim,%s,%s,%s,,%s,,,", oneOf("", "", "a", "b"), oneOf(addr(), addr(), addr(), cidr(26, 32)), oneOf("", "", "p0", "p1", "p2", "none"), oneOf("", "", "dc", "nowhere")))
	}
	return rows
}

// mildRows returns rows of a small plan without a problem, in which pools find their parents.
func mildRows(dice *rand.Rand) []string {
	rows := []string{"pool,all,10.0.0.0/16,,,,,,", "pool,red,10.0.0.0/16,,,,red,,"}
	for i := range 1 + dice.IntN(4) {
		rows = append(rows, fmt.Sprintf("pool,p%d,10.0.%d.0/24,,%s,,,24,10.0.%[2]d.1", i, i*8, []string{"", "all"}[dice.IntN(2)]))
		rows = append(rows, fmt.Sprintf("reserved,,10.0.%d.200-10.0.%[1]d.%d,p%d,,,,,", i*8, 200+dice.IntN(50), i))
		for at := 2; at < 200; at += 1 + dice.IntN(99) {
			rows = append(rows, fmt.Sprintf("claim,,10.0.%d.%d,p%d,,%s,,,", i*8, at, i, []string{"", "dc"}[dice.IntN(2)]))
		}
	}
	return rows
}

// withoutLines removes the numbers of lines from a plan: only they can depend on the order.
func withoutLines(lines []string) []string {
	var all []string
	for _, line := range lines {
		if number, rest, ok := strings.Cut(line, " | "); ok && strings.HasPrefix(number, "line ") {
			line = rest
		}
		all = append(all, line)
	}
	slices.Sort(all)
	return all
}

// TestAcceptedPlanIsApplied makes random plans: the objects that a plan accepts are made, the
// operator refuses those that it lists even then, and the order of the rows does not matter.
func TestAcceptedPlanIsApplied(t *testing.T) {
	plans, accepted := 40, 0
	for seed := range uint64(plans) {
		dice := rand.New(rand.NewPCG(seed, 0))
		rows := randomRows(dice)
		if seed%4 == 0 {
			rows = mildRows(dice)
		}
		cluster := newAdmitting(t)
		g := csvOf(t, strings.Join(rows, "\n")+"\n")
		pools, claims := g.pools, g.claims
		want := withoutLines(resultLines(t, clusterWith(""), csvOf(t, strings.Join(rows, "\n")+"\n")))
		var out strings.Builder
		err := g.run(t.Context(), cluster, Options{Action: Apply, SkipProblems: true, Out: &out})
		if err != nil {
			t.Fatalf("seed %d: %v\n%s\n%s", seed, err, strings.Join(rows, "\n"), out.String())
		}
		if g.problems == 0 {
			accepted++
		}
		for _, pool := range pools {
			holder := convert.HolderOfPool(convert.KeyOf(pool)) // one that waits for its parent is stored, and holds nothing
			if !slices.Contains(g.pools, pool) && cluster.Create(t.Context(), pool.DeepCopy()) == nil && len(cluster.parts.Ledger.HeldBy(holder)) > 0 {
				t.Errorf("seed %d: IPPool %s %s is made, which the plan lists as a problem\n%s\n%s", seed, pool.Name, pool.Spec.CIDR, strings.Join(rows, "\n"), out.String())
			}
		}
		for _, claim := range claims {
			made := claim.DeepCopy()
			if !slices.Contains(g.claims, claim) && claim.Namespace != "nowhere" && cluster.Create(t.Context(), made) == nil && made.Status.AllocatedCIDR != "" {
				t.Errorf("seed %d: IPClaim %s %s is bound, which the plan lists as a problem\n%s\n%s", seed, keyOf(claim), claim.Spec.CIDR, strings.Join(rows, "\n"), out.String())
			}
		}
		dice.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
		if diff := cmp.Diff(want, withoutLines(resultLines(t, clusterWith(""), csvOf(t, strings.Join(rows, "\n")+"\n")))); diff != "" {
			t.Fatalf("seed %d: in another order -want +got:\n%s", seed, diff)
		}
		if t.Failed() {
			return
		}
	}
	if accepted < plans/4 {
		t.Errorf("%d of %d plans were without problems: make more of them so", accepted, plans)
	}
	t.Logf("%d of %d plans were without problems", accepted, plans)
}
