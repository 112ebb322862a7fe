package migrate

import (
	"context"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// TestPlanListsWhyPoolsOfRangesAreRefused covers an operator that does not serve them.
func TestPlanListsWhyPoolsOfRangesAreRefused(t *testing.T) {
	tried := 0
	refusing := interceptor.NewClient(fake.NewFakeClient(), interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if options := (&client.CreateOptions{}).ApplyOptions(opts); len(options.DryRun) == 0 {
				t.Errorf("%s was created", obj.GetName())
			}
			tried++
			refused := field.Forbidden(field.NewPath("spec", "occupies"), "the feature gate PoolRanges is off")
			return apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("LocalIPPool").GroupKind(), obj.GetName(), field.ErrorList{refused})
		},
	})
	of := func(b *build.PoolBuilder, exists bool) *poolPlan {
		return &poolPlan{pool: b.CIDR("10.0.0.0/24").In("a"), exists: exists}
	}
	ranges := of(build.Pool("ranges").Occupies("10.0.0.10-10.0.0.50"), false)
	r := &run{client: refusing, plan: plan{pools: []*poolPlan{of(build.Pool("whole"), false), of(build.Pool("made").Occupies("10.0.0.60"), true), ranges}}}
	if err := r.tryPools(t.Context()); err != nil {
		t.Fatal(err)
	}
	equal(t, []string{`LocalIPPool.ipam.cadastre.dev "ranges" is invalid: spec.occupies: Forbidden: the feature gate PoolRanges is off`}, ranges.problems)
	if problems := r.plan.problems(); problems != 1 || tried != 1 {
		t.Errorf("%d problems after %d pools were tried, want 1 of the one that occupies ranges", problems, tried)
	}
}

// TestPlanTableEscapesControlCharacters covers texts that NetBox's users and the authors of CSV files
// can write.
func TestPlanTableEscapesControlCharacters(t *testing.T) {
	var out strings.Builder
	if err := printTable(&out, []row{{"a", "b", "of eve\x1b[2J\nIPPool core\tbecomes\tnothing"}}); err != nil {
		t.Fatal(err)
	}
	want := "OBJECT   BECOMES   NOTE\na        b         of eve\\x1b[2J\\nIPPool core\\tbecomes\\tnothing\n"
	if out.String() != want {
		t.Errorf("printed is %q, want %q", out.String(), want)
	}
	out.Reset()
	(&run{o: Options{Out: &out}}).say("pool %s\nsecond line", "eve\x1b[2J")
	if want := "pool eve\\x1b[2J\nsecond line\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
