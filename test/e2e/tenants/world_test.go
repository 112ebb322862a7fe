package tenants

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// Namespaces. Those of the hostile tenant are one project.
const (
	honestNamespace  = "honest"
	hostileNamespace = "hostile"
	// quotaNamespace has a quota of no claim at all: every claim created in it is refused after its
	// block was recorded.
	quotaNamespace = "hostile-quota"
	// crowdNamespace has no quota, for claims that wait.
	crowdNamespace = "hostile-crowd"
	hostileProject = "hostile"
)

// Pools.
const (
	poolCommon = "common" // for all tenants, limited for each project
	poolKept   = "kept"   // for all tenants, with Retain, limited
	poolOwn    = "own"    // of the honest tenant, four addresses
	poolOthers = "others" // of another owner: to name it takes the right to use it
	poolInner  = "inner"  // of the platform
	poolSmall  = "small"  // for all tenants, without limit: first come, first served
	poolOpen   = "open"   // the same, and only asked for by creates that are refused later
	poolTight  = "tight"  // for all tenants, limited, and with little room for all
	poolBrim   = "brim"   // of one address, of the same class: a tenant at the limit waits for it
)

// The limits that the platform sets to tenants who take too much.
const (
	limitCommon, limitKept, limitTight = 80, 24, 4
	quotaClaims                        = 400
	quotaLocalPools                    = 12
	// shareOpen is an eighth of poolOpen: the number that one namespace may have unclaimed.
	shareOpen = 8
	// refusedLabel is on claims that a policy refuses.
	refusedLabel = "example.com/refused"
)

// mostLarge is the number of the largest claims that wait: more than a namespace may have.
const mostLarge = 100

// world holds a cluster as docs/operations.md, "Keeping tenants apart", describes it.
type world struct {
	*suite.World
	// processes has the replicas as they were started.
	processes []int
}

func hostileNamespaces() []string { return []string{hostileNamespace, quotaNamespace, crowdNamespace} }

// prepare makes the namespaces, the users and the pools.
func prepare(running *suite.World) *world {
	running.Helper()
	w := &world{World: running, processes: running.Processes()}
	w.Created(build.NamespaceOf("honest", honestNamespace), build.Editor("alice", honestNamespace))
	for _, name := range hostileNamespaces() {
		w.Created(build.NamespaceOf(hostileProject, name), build.Editor("mallory", name))
	}
	w.refuseLabeled()
	w.quota(hostileNamespace, quotaClaims)
	w.quota(quotaNamespace, 0)
	w.Created(
		build.Class("hosts").Default().Length(32).Obj(),
		build.Class("scarce").Length(32).Obj(),
		build.Class("keep").Length(32).With(func(s *v1alpha1.IPClassSpec) { s.ReclaimPolicy = v1alpha1.ReclaimRetain }).Obj(),
	)
	w.Pools(
		build.Pool(poolCommon).CIDR("10.80.0.0/21").Classes("hosts").Limit(limitCommon).Obj(),
		build.Pool(poolKept).CIDR("10.81.0.0/24").Classes("keep").Limit(limitKept).Obj(),
		build.Pool(poolOwn).CIDR("10.82.0.0/30").With(func(s *v1alpha1.IPPoolSpec) { s.Project, s.Visibility = "honest", v1alpha1.VisibilityConsumer }).Obj(),
		build.Pool(poolOthers).CIDR("10.83.0.0/24").With(func(s *v1alpha1.IPPoolSpec) { s.Project = "others" }).Obj(),
		build.Pool(poolInner).CIDR("10.84.0.0/24").With(func(s *v1alpha1.IPPoolSpec) { s.Visibility = v1alpha1.VisibilityPlatform }).Obj(),
		build.Pool(poolSmall).CIDR("10.85.0.0/29").Obj(),
		build.Pool(poolOpen).CIDR("10.86.0.0/26").Obj(),
		build.Pool(poolTight).CIDR("10.87.0.0/28").Classes("scarce").Limit(limitTight).Obj(),
		build.Pool(poolBrim).CIDR("10.88.0.0/32").Classes("scarce").Obj(),
	)
	return w
}

// quota bounds the objects of a namespace, and waits until it does. Its status is filled in here,
// as its controller discovers the CRDs' kinds only after half a minute.
func (w *world) quota(namespace string, claims int64) {
	w.Helper()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "addresses"}}
	quota.Spec.Hard = corev1.ResourceList{
		"count/ipclaims.ipam.cadastre.dev":     *resource.NewQuantity(claims, resource.DecimalSI),
		"count/localippools.ipam.cadastre.dev": *resource.NewQuantity(quotaLocalPools, resource.DecimalSI),
	}
	w.Created(quota)
	w.AwaitUnlessFailed("the quota of "+namespace+" is in force", func(ctx context.Context) (bool, error) {
		if err := w.Get(ctx, client.ObjectKeyFromObject(quota), quota); err != nil {
			return false, err
		}
		quota.Status.Hard, quota.Status.Used = quota.Spec.Hard, corev1.ResourceList{}
		for name := range quota.Spec.Hard {
			quota.Status.Used[name] = resource.MustParse("0")
		}
		err := w.Status().Update(ctx, quota)
		return err == nil, ignoreConflict(err)
	})
}

// refuseLabeled installs a rule of the platform that refuses objects with the label.
func (w *world) refuseLabeled() {
	w.Helper()
	policy, binding := build.Refusal("platform-rule", refusedLabel, "")
	w.Created(policy, binding)
	probe := build.Claim(crowdNamespace, "probe").Class("missing").Obj()
	probe.Labels = map[string]string{refusedLabel: "true"}
	w.AwaitUnlessFailed("the platform's rule is in force", func(ctx context.Context) (bool, error) {
		return w.Create(ctx, probe.DeepCopy(), client.DryRunAll) != nil, nil
	})
}

func ignoreConflict(err error) error {
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// judgeProcesses fails if a replica ended, panicked, or took so much memory that it came near to
// being killed.
func (w *world) judgeProcesses() {
	w.Helper()
	most := int(float64(w.memoryLimit()) * memoryShare)
	w.Unharmed(w.processes)
	for _, m := range w.Managers {
		peak := suite.Memory(w, m.PID(), "VmHWM")
		w.Logf("%s: %d MiB at most", m.Name, peak>>20)
		if peak > most {
			w.Errorf("%s took %d MiB, more than %d MiB", m.Name, peak>>20, most>>20)
		}
	}
}

// judgeStart makes as many of the largest claims wait as a namespace may have, and fails if a replica that is started
// beside them does not get ready, or takes too much memory for that.
func (w *world) judgeStart() {
	w.Helper()
	mallory, waiting := w.As("mallory"), 0
	for n := range mostLarge {
		err := mallory.Create(w.Context(), selectingMuch(build.Claim(crowdNamespace, fmt.Sprint("large-", n)).Length(32).Obj()))
		if err != nil && !apierrors.IsTooManyRequests(err) {
			w.Fatal(err)
		}
		if err == nil {
			waiting++
		}
	}
	replica := w.Managers[0]
	suite.Must(w, replica.Stop())
	suite.Must(w, replica.Start(w.Context()))
	w.processes = w.Processes()
	w.Logf("a replica started beside %d of the largest claims that wait, and %d that may not", waiting, mostLarge-waiting)
	if waiting == 0 || waiting == mostLarge {
		w.Errorf("of %d such claims %d wait, want some, and not all", mostLarge, waiting)
	}
	w.judgeProcesses()
}

// memoryLimit returns that of the container, in bytes.
func (w *world) memoryLimit() int64 {
	w.Helper()
	root := suite.ModuleRoot(w)
	manifest, err := os.ReadFile(filepath.Join(root, "config/manager/deployment.yaml"))
	suite.Must(w, err)
	deployment := &appsv1.Deployment{}
	suite.Must(w, yaml.UnmarshalStrict(manifest, deployment))
	return deployment.Spec.Template.Spec.Containers[0].Resources.Limits.Memory().Value()
}

// judgeEnd removes the hostile tenant, and fails if that leaves anything behind, or if the honest
// one does not hold its former blocks.
func (w *world) judgeEnd(good *honest) {
	w.Helper()
	w.judgeClaims()
	for _, name := range hostileNamespaces() {
		w.finishClaims(name)
		suite.Must(w, w.Delete(w.Context(), build.NamespaceOf(hostileProject, name)))
	}
	for _, name := range hostileNamespaces() {
		w.AwaitUnlessFailed("namespace "+name+" is gone", func(ctx context.Context) (bool, error) {
			w.finishClaims(name) // claims that were being stored
			err := w.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{})
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		})
	}
	records := &v1alpha1.IPAllocationList{}
	suite.Must(w, w.List(w.Context(), records))
	held := map[string]string{}
	for _, r := range records.Items {
		if r.Spec.Project == hostileProject {
			w.Errorf("IPAllocation %s/%s of the hostile project is left, state %s", r.Namespace, r.Name, r.Spec.State)
		}
		held[r.Namespace+"/"+r.Name] = r.Spec.CIDR
	}
	for _, claim := range good.held {
		now := &v1alpha1.IPClaim{}
		suite.Must(w, w.Get(w.Context(), client.ObjectKeyFromObject(claim), now))
		if now.Spec.CIDR != claim.Spec.CIDR || held[claim.Namespace+"/"+claim.Spec.AllocationName] != claim.Spec.CIDR {
			w.Errorf("IPClaim %s was given %s, has %s, and its record %q", claim.Name, claim.Spec.CIDR, now.Spec.CIDR, held[claim.Namespace+"/"+claim.Spec.AllocationName])
		}
	}
}

// judgeClaims fails if a status shows the hostile tenant the honest one's claims, or if a claim has
// no status at all.
func (w *world) judgeClaims() {
	w.Helper()
	for _, name := range hostileNamespaces() {
		var claimsWithoutStatus []string
		w.AwaitUnlessFailed("every claim of "+name+" has a status", func(ctx context.Context) (bool, error) {
			claims := &v1alpha1.IPClaimList{}
			err := w.List(ctx, claims, client.InNamespace(name))
			claimsWithoutStatus = nil
			for _, claim := range claims.Items {
				if strings.Contains(fmt.Sprint(claim.Status), confidential) || slices.ContainsFunc(claim.Status.Candidates, isOfOthers) {
					w.Fatalf("IPClaim %s/%s has information about others: %v", name, claim.Name, claim.Status)
				}
				if claim.Status.Phase == "" && claim.DeletionTimestamp.IsZero() {
					claimsWithoutStatus = append(claimsWithoutStatus, claim.Name)
				}
			}
			return len(claimsWithoutStatus) == 0, err
		})
		w.judgeEvents(name)
	}
}

// mostEvents bounds the events of the operator in a namespace in a run: 25, and 12 a minute.
const mostEvents = 25 + 12*10

// judgeEvents fails if events show the hostile tenant information about others, or if its claims
// have flooded the API server with them.
func (w *world) judgeEvents(namespace string) {
	w.Helper()
	events, ours := &eventsv1.EventList{}, 0
	suite.Must(w, w.List(w.Context(), events, client.InNamespace(namespace)))
	for _, e := range events.Items {
		if e.ReportingController == "cadastre" {
			ours++
		}
		if strings.Contains(e.Note, confidential) {
			w.Errorf("an event in %s has information about others: %s", namespace, e.Note)
		}
	}
	if ours > mostEvents || ours == 0 && namespace == crowdNamespace {
		w.Errorf("%s has %d events, want some, and %d at most", namespace, ours, mostEvents)
	}
}

// finishClaims removes the tenant's own finalizers, as it would itself.
func (w *world) finishClaims(namespace string) {
	w.Helper()
	claims := &v1alpha1.IPClaimList{}
	suite.Must(w, w.List(w.Context(), claims, client.InNamespace(namespace)))
	for _, claim := range claims.Items {
		if slices.Contains(claim.Finalizers, ownFinalizer) {
			suite.Must(w, client.IgnoreNotFound(w.Patch(w.Context(), &claim, build.Merge(`{"metadata":{"finalizers":null}}`))))
		}
	}
}
