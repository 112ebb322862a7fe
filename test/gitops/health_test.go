package gitops

import (
	"context"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	luajson "layeh.com/gopher-json"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// Health of Argo CD.
const (
	healthy     = "Healthy"
	progressing = "Progressing"
	degraded    = "Degraded"
	suspended   = "Suspended"
)

// phase holds an object in a phase, and the expected results of Flux and Argo CD.
type phase struct {
	obj client.Object
	// phase is the phase in the status; of kinds that have none, the reason of Ready.
	phase  string
	flux   status.Status
	argoCD string
}

const healthTeam = "health"

// phases brings objects of every kind into every phase that it can be in.
func (w *world) phases() []phase {
	w.Helper()
	pool := func(name string) *build.PoolBuilder { return build.Pool("health-" + name) }
	claim := func(name string) *build.ClaimBuilder { return build.Claim(healthTeam, name) }
	pause := func(p v1alpha1.Pool) client.Object {
		p.SetAnnotations(map[string]string{v1alpha1.AnnotationPaused: "true"})
		return p
	}
	ready, full, going := pool("ready").CIDR("10.200.0.0/24").Classes("health"), pool("full").CIDR("10.201.0.0/30"), pool("going").CIDR("10.202.0.0/24")
	waits, paused := pool("waits").Child("none", 24), pool("paused").CIDR("10.203.0.0/24")
	// A pool is being deleted as long as a claim is that has a block of it.
	keeps, keepsLocal := claim("keeps").Pool("health-going").Length(28).Finalizer("example.com/keep"), claim("keeps-local").LocalPool("health-going").Length(28).Finalizer("example.com/keep")
	phases := []phase{
		{build.Class("health").Obj(), v1alpha1.ReasonReady, status.CurrentStatus, healthy},
		{build.Class("health-alone").Obj(), v1alpha1.ReasonNoPools, status.CurrentStatus, healthy},
		{ready.Obj(), "Ready", status.CurrentStatus, healthy},
		{full.Obj(), "Exhausted", status.CurrentStatus, healthy},
		{waits.Obj(), "Pending", status.InProgressStatus, progressing},
		{pause(paused.Obj()), "Paused", status.InProgressStatus, suspended},
		{going.Obj(), "Terminating", status.TerminatingStatus, progressing},
		{ready.In(healthTeam), "Ready", status.CurrentStatus, healthy},
		{full.In(healthTeam), "Exhausted", status.CurrentStatus, healthy},
		{waits.In(healthTeam), "Pending", status.InProgressStatus, progressing},
		{pause(paused.In(healthTeam)), "Paused", status.InProgressStatus, suspended},
		{going.In(healthTeam), "Terminating", status.TerminatingStatus, progressing},
		{keeps.Obj(), "Bound", status.TerminatingStatus, healthy},
		{keepsLocal.Obj(), "Bound", status.TerminatingStatus, healthy},
		{claim("fills").Pool("health-full").Length(30).Obj(), "Bound", status.CurrentStatus, healthy},
		{claim("fills-local").LocalPool("health-full").Length(30).Obj(), "Bound", status.CurrentStatus, healthy},
		{claim("waits").Class("none").Obj(), "Pending", status.InProgressStatus, progressing},
		{claim("no-room").Pool("health-full").Length(32).Obj(), "Exhausted", status.InProgressStatus, degraded},
		{build.AddressClaim(healthTeam, "address").Pool("health-ready").Obj(), v1alpha1.ReasonAddressAllocated, status.CurrentStatus, healthy},
		{build.AddressClaim(healthTeam, "nowhere").Pool("none").Obj(), v1alpha1.ReasonPoolNotFound, status.InProgressStatus, progressing},
		{build.AddressClaim(healthTeam, "no-room").Pool("health-full").Obj(), v1alpha1.ReasonPoolExhausted, status.InProgressStatus, degraded},
	}
	w.Namespace(healthTeam)
	for _, p := range phases {
		w.Created(p.obj)
	}
	w.Deleted(keeps.Obj(), keepsLocal.Obj(), going.Obj(), going.In(healthTeam))
	return phases
}

// healthOfEveryPhase asks kstatus, which Flux has, and Argo CD's script.
func (w *world) healthOfEveryPhase(t *testing.T) {
	seen := map[string][]string{}
	for _, p := range w.phases() {
		gvk, err := w.GroupVersionKindFor(p.obj)
		suite.Must(t, err)
		obj := &unstructured.Unstructured{}
		obj.SetGroupVersionKind(gvk)
		obj.SetNamespace(p.obj.GetNamespace())
		obj.SetName(p.obj.GetName())
		w.Await(nameOf(obj)+" is "+p.phase, func(ctx context.Context) bool {
			return w.Get(ctx, client.ObjectKeyFromObject(obj), obj) == nil && phaseOf(obj) == p.phase
		})
		result, err := status.Compute(obj)
		suite.Must(t, err)
		if result.Status != p.flux {
			t.Errorf("%s is %s: kstatus says %s (%s), want %s", nameOf(obj), p.phase, result.Status, result.Message, p.flux)
		}
		got, message := healthOf(t, obj.Object)
		if got != p.argoCD || message == "" {
			t.Errorf("%s is %s: Argo CD says %s (%s), want %s and a message", nameOf(obj), p.phase, got, message, p.argoCD)
		}
		seen[gvk.Kind] = append(seen[gvk.Kind], p.phase)
	}
	for kind, plural := range map[string]string{"IPPool": "ippools", "LocalIPPool": "localippools", "IPClaim": "ipclaims"} {
		for _, phaseName := range w.phasesOf(plural) {
			if !slices.Contains(seen[kind], phaseName) {
				t.Errorf("%s: no object has the phase %s", kind, phaseName)
			}
		}
	}
	w.recordsAreCurrent()
}

// recordsAreCurrent expects that IPAllocations, which have no conditions, are current.
func (w *world) recordsAreCurrent() {
	w.Helper()
	records := &unstructured.UnstructuredList{}
	records.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("IPAllocationList"))
	suite.Must(w, w.List(w.Context(), records))
	if len(records.Items) == 0 {
		w.Fatal("there is no record")
	}
	for i := range records.Items {
		result, err := status.Compute(&records.Items[i])
		suite.Must(w, err)
		if result.Status != status.CurrentStatus {
			w.Errorf("IPAllocation %s: kstatus says %s (%s)", records.Items[i].GetName(), result.Status, result.Message)
		}
	}
}

func phaseOf(obj *unstructured.Unstructured) string {
	if phase, ok, _ := unstructured.NestedString(obj.Object, "status", "phase"); ok {
		return phase
	}
	conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, c := range conditions {
		if condition := c.(map[string]any); condition["type"] == v1alpha1.ConditionReady {
			return condition["reason"].(string)
		}
	}
	return ""
}

// phasesOf returns the phases that a CRD knows.
func (w *world) phasesOf(plural string) []string {
	w.Helper()
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	suite.Must(w, w.Get(w.Context(), client.ObjectKey{Name: plural + "." + v1alpha1.GroupVersion.Group}, crd))
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	phases, _, _ := unstructured.NestedStringSlice(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", "status", "properties", "phase", "enum")
	if len(phases) == 0 {
		w.Fatalf("the CRD of %s names no phase", plural)
	}
	return phases
}

// healthOf runs Argo CD's script with the libraries that it has there.
func healthOf(t testing.TB, obj map[string]any) (health, message string) {
	t.Helper()
	root := suite.ModuleRoot(t)
	script, err := os.ReadFile(filepath.Join(root, "config", "argocd", "health.lua"))
	suite.Must(t, err)
	text, err := json.Marshal(obj)
	suite.Must(t, err)
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer l.Close()
	for name, open := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		suite.Must(t, l.CallByParam(lua.P{Fn: l.NewFunction(open), Protect: true}, lua.LString(name)))
	}
	value, err := luajson.Decode(l, text)
	suite.Must(t, err)
	l.SetGlobal("obj", value)
	suite.Must(t, l.DoString(string(script)))
	result, ok := l.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("the script returns a %s, want a table", l.Get(-1).Type())
	}
	return lua.LVAsString(result.RawGetString("status")), lua.LVAsString(result.RawGetString("message"))
}

// TestHealthScriptCoversEveryReason checks that the script has every reason of the API, but for those listed
// here.
func TestHealthScriptCoversEveryReason(t *testing.T) {
	object := func(ready, reason string, observed int64) map[string]any {
		return map[string]any{
			"metadata": map[string]any{"generation": 2},
			"status": map[string]any{"conditions": []any{
				map[string]any{"type": "Other", "status": "False", "reason": "Other"},
				map[string]any{"type": "Ready", "status": ready, "reason": reason, "message": "", "observedGeneration": observed},
			}},
		}
	}
	want := map[string]string{
		v1alpha1.ReasonPoolExhausted: degraded, v1alpha1.ReasonClassNotFound: progressing, v1alpha1.ReasonNoDefaultClass: progressing,
		v1alpha1.ReasonPoolNotFound: progressing, v1alpha1.ReasonPoolNotReady: progressing, v1alpha1.ReasonNoPoolForClass: progressing,
		v1alpha1.ReasonPolicyViolation: degraded, v1alpha1.ReasonCannotFit: degraded, v1alpha1.ReasonWaitingForProvisioner: progressing,
		v1alpha1.ReasonConflict: degraded, v1alpha1.ReasonLimitReached: degraded, v1alpha1.ReasonRecordRefused: degraded,
		v1alpha1.ReasonTooManyWaiting: degraded, v1alpha1.ReasonNotServed: degraded, v1alpha1.ReasonParentNotReady: progressing,
		v1alpha1.ReasonInvalid: degraded, v1alpha1.ReasonPaused: suspended, v1alpha1.ReasonTerminating: progressing, v1alpha1.ReasonProviderRunning: progressing,
		v1alpha1.ReasonClusterNotFound: progressing, v1alpha1.ReasonNotDefault: degraded,
	}
	for _, reason := range reasonsOfTheAPI(t) {
		if isPositive(reason) {
			continue
		}
		health, ok := want[reason]
		if !ok {
			t.Errorf("%s: its health is missing in the table", reason)
		}
		if got, message := healthOf(t, object("False", reason, 2)); got != health || message != reason {
			t.Errorf("Ready is False, %s: got %s (%s), want %s", reason, got, message, health)
		}
	}
	for name, c := range map[string]struct {
		obj  map[string]any
		want string
	}{
		"ready":               {object("True", "Bound", 2), healthy},
		"not observed yet":    {object("True", "Ready", 1), progressing},
		"no status":           {map[string]any{"metadata": map[string]any{}}, progressing},
		"no conditions":       {map[string]any{"metadata": map[string]any{}, "status": map[string]any{}}, progressing},
		"no Ready":            {map[string]any{"metadata": map[string]any{}, "status": map[string]any{"conditions": []any{}}}, progressing},
		"a status of unknown": {object("Unknown", "Else", 2), progressing},
	} {
		if got, message := healthOf(t, c.obj); got != c.want || message == "" {
			t.Errorf("%s: got %s (%s), want %s and a message", name, got, message, c.want)
		}
	}
}

// isPositive reports whether a reason belongs to conditions that are as they should be.
func isPositive(reason string) bool {
	return slices.Contains([]string{
		v1alpha1.ReasonBound, v1alpha1.ReasonReady, v1alpha1.ReasonFull, v1alpha1.ReasonRecorded, v1alpha1.ReasonHasRoom, v1alpha1.ReasonAddressAllocated, v1alpha1.ReasonNoPools,
	}, reason)
}

// reasonsOfTheAPI returns the values of all constants of the API that are reasons of conditions.
func reasonsOfTheAPI(t *testing.T) []string {
	t.Helper()
	root := suite.ModuleRoot(t)
	var reasons []string
	for _, name := range []string{"conditions.go", "clusterapi.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "api", "v1alpha1", name), nil, 0)
		suite.Must(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			value, ok := n.(*ast.ValueSpec)
			if !ok || len(value.Values) != 1 || !strings.HasPrefix(value.Names[0].Name, "Reason") {
				return true
			}
			if literal, ok := value.Values[0].(*ast.BasicLit); ok {
				reason, err := strconv.Unquote(literal.Value)
				suite.Must(t, err)
				reasons = append(reasons, reason)
			}
			return true
		})
	}
	if len(reasons) < 20 {
		t.Fatalf("found %d reasons only", len(reasons))
	}
	return reasons
}
