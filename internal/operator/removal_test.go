package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// TestRemovalPolicyListsEveryFinalizer compares the policy with the removed finalizers.
func TestRemovalPolicyListsEveryFinalizer(t *testing.T) {
	for _, p := range protections() {
		if !strings.Contains(removal, "'"+p.finalizer+"'") {
			t.Errorf("%s, of kind %s, could be put back", p.finalizer, p.kind.Kind)
		}
	}
	if !strings.Contains(removal, `"`+removalMessage) {
		t.Errorf("the policy does not contain %q", removalMessage)
	}
}

// TestConcurrentlyChangedObjectLosesFinalizerInLaterPass changes a record before each attempt of the
// first passes, as an operator does that has no right to make an IPAddress.
// TestConcurrentlyChangedObjectLosesFinalizerInLaterPass has another controller add its finalizer between the list
// and the patch of each of the first passes.
func TestConcurrentlyChangedObjectLosesFinalizerInLaterPass(t *testing.T) {
	scheme, err := cluster.Scheme()
	suite.Must(t, err)
	record := newRecord("machine")
	var added []string
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(record).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, options ...client.PatchOption) error {
			if len(added) < 3 {
				added = append(added, fmt.Sprint("later-", len(added)))
				suite.Must(t, c.Get(ctx, client.ObjectKeyFromObject(record), record))
				record.Finalizers = append(record.Finalizers, added[len(added)-1])
				suite.Must(t, c.Update(ctx, record))
			}
			return c.Patch(ctx, obj, patch, options...)
		},
	}).Build()

	for pass, want := range []int{1, 1, 1, 1, 0} {
		if removed, err := protections()[0].remove(t.Context(), c); removed != want || err != nil {
			t.Fatalf("pass %d has found %d finalizers, %v; want %d", pass, removed, err, want)
		}
	}
	suite.Must(t, c.Get(t.Context(), client.ObjectKeyFromObject(record), record))
	if want := append([]string{"others"}, added...); !slices.Equal(record.Finalizers, want) {
		t.Errorf("the record has the finalizers %q, want %q", record.Finalizers, want)
	}
}

var errBroken = errors.New("broken")

// removalServer implements the API server, as the removal calls it, and the report. IPAddresses are
// not served.
type removalServer struct {
	client.WithWatch
	t       *testing.T
	options Options
	// succeeding is the number of calls after which one fails. Probes do not count.
	succeeding int
	// apply answers each attempt to apply the policy or its binding.
	apply func(ctx context.Context, attempt int) error
	// probe answers each attempt to create a record.
	probe func(attempt int) error
	// added has the records that appear before a list of all records.
	added map[int]string

	applied, probes, lists int
	isInForce              bool
	report                 strings.Builder
}

var (
	errForbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "validatingadmissionpolicies"}, removalRole, nil)
	errRemoval   = errors.New("forbidden: " + removalMessage)
)

func newRemovalServer(t *testing.T) *removalServer {
	t.Helper()
	scheme, err := cluster.Scheme()
	suite.Must(t, err)
	s := &removalServer{t: t, options: Options{Namespace: "system", ServiceAccount: "operator"}, succeeding: 1000, added: map[int]string{}}
	s.apply = func(context.Context, int) error { return nil }
	s.probe = func(attempt int) error {
		if attempt < 2 {
			return nil
		}
		return errRemoval
	}
	s.WithWatch = interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).Build(), interceptor.Funcs{
		Create: s.create, List: s.list, Patch: s.patch,
		Apply: func(ctx context.Context, _ client.WithWatch, _ runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
			s.applied++
			return errors.Join(s.call(), s.apply(ctx, s.applied))
		},
	})
	suite.Must(t, s.WithWatch.Create(t.Context(), newRecord("machine")))
	suite.Must(t, s.WithWatch.Create(t.Context(), &ipamv1.IPAddressClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "machine", Finalizers: []string{v1alpha1.FinalizerRelease}}}))
	return s
}

func newRecord(name string) *v1alpha1.IPAllocation {
	return &v1alpha1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, Finalizers: []string{v1alpha1.FinalizerHeld, "others"}}}
}

func (s *removalServer) call() error {
	if s.succeeding--; s.succeeding == -1 {
		return errBroken
	}
	return nil
}

func (s *removalServer) Write(text []byte) (int, error) {
	if err := s.call(); err != nil {
		return 0, err
	}
	return s.report.Write(text)
}

func (s *removalServer) create(ctx context.Context, c client.WithWatch, obj client.Object, options ...client.CreateOption) error {
	if review, ok := obj.(*authenticationv1.SelfSubjectReview); ok {
		review.Status.UserInfo.Username = s.options.User()
		return s.call()
	}
	if !slices.Contains(options, client.CreateOption(client.DryRunAll)) {
		return c.Create(ctx, obj, options...)
	}
	s.probes++
	err := s.probe(s.probes)
	s.isInForce = err != nil
	return err
}

func (s *removalServer) list(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
	kind := list.GetObjectKind().GroupVersionKind()
	if kind == ipamv1.GroupVersion.WithKind("IPAddressList") {
		return &meta.NoKindMatchError{GroupKind: kind.GroupKind()}
	}
	if kind == v1alpha1.GroupVersion.WithKind("IPAllocationList") {
		if s.lists++; s.added[s.lists] != "" {
			suite.Must(s.t, c.Create(ctx, newRecord(s.added[s.lists])))
		}
	}
	if err := s.call(); err != nil {
		return err
	}
	return c.List(ctx, list, options...)
}

func (s *removalServer) patch(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, options ...client.PatchOption) error {
	if s.applied < 2 || !s.isInForce {
		s.t.Errorf("%s loses its finalizer before nothing new is admitted", obj.GetName())
	}
	if err := s.call(); err != nil {
		return err
	}
	return c.Patch(ctx, obj, patch, options...)
}

// remove runs the removal, and expects an error with this text, or none.
func (s *removalServer) remove(want string) {
	s.t.Helper()
	err := removeFinalizers(s.t.Context(), s, s.options, s)
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		s.t.Errorf("the removal ends with the error %v, want %q", err, want)
	}
	if isDone := strings.HasSuffix(s.report.String(), "no object has a finalizer of Cadastre any more\n"); isDone != (err == nil) {
		s.t.Errorf("after the error %v the report is\n%s", err, &s.report)
	}
}

// TestRemovalRepeatsUntilThreePassesAreClean lets records appear that were admitted before the policy
// was in force, and are stored later.
func TestRemovalRepeatsUntilThreePassesAreClean(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRemovalServer(t)
		s.added = map[int]string{3: "late", 5: "later"}
		s.remove("")
		if s.lists != 8 {
			t.Errorf("it ends after %d passes, want 8", s.lists)
		}
		records, claims := &v1alpha1.IPAllocationList{}, &ipamv1.IPAddressClaimList{}
		suite.Must(t, errors.Join(s.List(t.Context(), records), s.List(t.Context(), claims)))
		for _, record := range records.Items {
			if !slices.Equal(record.Finalizers, []string{"others"}) || len(record.Annotations) > 0 {
				t.Errorf("%s has the finalizers %q and annotations %v", record.Name, record.Finalizers, record.Annotations)
			}
		}
		for _, claim := range claims.Items {
			if _, ok := claim.Annotations[clusterv1.PausedAnnotation]; !ok || len(claim.Finalizers) > 0 {
				t.Errorf("a claim has the finalizers %q and annotations %v", claim.Finalizers, claim.Annotations)
			}
		}
		if len(records.Items) != 3 || len(claims.Items) != 1 {
			t.Errorf("%d records and %d claims are left", len(records.Items), len(claims.Items))
		}
	})
}

// TestRemovalReportsFirstFailure makes each call fail, one at a time: of the API server, and of the report.
func TestRemovalReportsFirstFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for n := range 100 {
			s := newRemovalServer(t)
			s.succeeding = n
			err := removeFinalizers(t.Context(), s, s.options, s)
			if s.succeeding >= 0 {
				suite.Must(t, err)
				return
			}
			if !errors.Is(err, errBroken) {
				t.Errorf("call %d fails, and the removal returns %v", n, err)
			}
		}
		t.Error("it never succeeds")
	})
}

func TestRemovalInstallsItsPolicyFirst(t *testing.T) {
	admitted := func(int) error { return nil }
	for name, c := range map[string]struct {
		apply func(ctx context.Context, attempt int) error
		probe func(attempt int) error
		want  string
	}{
		"its right is in force at the fourth attempt": {apply: func(_ context.Context, attempt int) error {
			if attempt < 4 {
				return errForbidden
			}
			return nil
		}},
		"its right never is in force": {
			apply: func(context.Context, int) error { return errForbidden },
			want:  "run this again: kubectl create clusterrolebinding cadastre-removal --clusterrole=cadastre-removal --serviceaccount=system:operator",
		},
		"its right is not in force, and a later attempt gets no answer": {
			apply: func(ctx context.Context, attempt int) error {
				if attempt == 1 {
					return errForbidden
				}
				<-ctx.Done()
				return ctx.Err()
			},
			want: "bind the ClusterRole that allows it",
		},
		"the policy is never enforced": {probe: admitted, want: "waiting until nothing new is admitted"},
		"records are not served":       {probe: func(int) error { return &meta.NoKindMatchError{} }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newRemovalServer(t)
				if c.apply != nil {
					s.apply = c.apply
				}
				if c.probe != nil {
					s.probe = c.probe
				}
				s.remove(c.want)
			})
		})
	}
}

func TestRemovalNeedsConnection(t *testing.T) {
	cfg := &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: "missing-ca"}}
	if err := RemoveFinalizers(t.Context(), cfg, Options{}, &strings.Builder{}); err == nil || !strings.Contains(err.Error(), "missing-ca") {
		t.Errorf("got %v, want the file that is missing", err)
	}
}
