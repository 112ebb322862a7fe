package provisioner

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

func TestDemandIsMetByPools(t *testing.T) {
	w := newWorld(t)
	w.settles()
	w.expects("no demand", 0, ReasonProvisioned)
	w.demands(28, 17) // one more than a pool has
	w.settles()
	w.expects("a demand for 17 of 16 blocks", 2, ReasonProvisioned)
	for _, pool := range w.pools() {
		if pool.Labels[LabelProvisioner] != "ipam.example.com.ranges" || !slices.Equal(pool.Spec.ClassNames, []string{className}) {
			t.Errorf("the pool has labels %v and classes %v", pool.Labels, pool.Spec.ClassNames)
		}
	}
	pools := w.pools()
	w.takes(&pools[0], 256, "") // the demand is a second behind
	w.takes(&pools[1], 16, "/25")
	if after := w.settles(); after != settle {
		t.Errorf("the next pass is due after %v, want %v, when the pools count as they are", after, settle)
	}
	w.expects("the pools serve it", 2, ReasonProvisioned)
	w.passes(settle)
	w.demands(25, 1)
	w.settles()
	w.expects("a pool has room", 2, ReasonProvisioned)
	w.demands(24, 1)
	w.settles()
	w.expects("no pool has a block that is large enough", 3, ReasonProvisioned)
	w.demands(24, 1, 26, 100)
	w.passes(settle)
	w.settles()
	w.expects("as many pools as there may be", 4, ReasonMaxPools)
	w.demands(23, 1)
	w.settles()
	w.expects("a block that is larger than a pool", 4, ReasonBlockTooLarge)
}

func TestSpareRoomIsKept(t *testing.T) {
	w := newWorld(t)
	w.edit(func(class *v1alpha1.IPClass) { class.Spec.Parameters["spare"] = "8" })
	w.settles()
	w.expects("8 spare blocks", 1, ReasonProvisioned)
	pools := w.pools()
	w.passes(settle)
	w.takes(&pools[0], 144, "/25") // 7 are left
	w.settles()
	w.expects("7 are left", 2, ReasonProvisioned)
}

func TestEmptyPoolIsReturned(t *testing.T) {
	w := newWorld(t)
	w.demands(28, 17)
	w.settles()
	pools := w.pools()
	w.takes(&pools[0], 16, "/25")
	w.demands()
	w.passes(settle)
	if after := w.settles(); after != 10*time.Minute-settle {
		t.Errorf("the next pass is due after %v, want that of the confirmation", after)
	}
	w.passes(9 * time.Minute)
	w.settles()
	w.expects("before it is due", 2, ReasonProvisioned)
	w.passes(time.Minute)
	w.settles()
	w.expects("the empty one", 1, ReasonProvisioned)
	if left := w.pools()[0].Name; left != pools[0].Name {
		t.Errorf("pool %s is left, want the one in use, %s", left, pools[0].Name)
	}
	w.takes(&w.pools()[0], 0, "/24")
	w.edit(func(class *v1alpha1.IPClass) { class.Spec.Parameters["spare"] = "1" })
	w.settles()
	w.passes(time.Hour)
	w.settles()
	w.expects("the last one is spare", 1, ReasonProvisioned)
	w.edit(func(class *v1alpha1.IPClass) { class.Spec.Provisioner = "another.example.com/x" })
	w.settles()
	if len(w.pools())+len(w.upstream.ranges) > 0 {
		t.Errorf("the class has another provisioner, and %d pools with %d ranges are left", len(w.pools()), len(w.upstream.ranges))
	}
}

// TestPoolThatServesNotAllClaimsIsNoRoom expects another pool beside one that a user has changed.
func TestPoolThatServesNotAllClaimsIsNoRoom(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.IPPool){
		"paused":                func(p *v1alpha1.IPPool) { p.Annotations = map[string]string{v1alpha1.AnnotationPaused: ""} },
		"paused by Cluster API": func(p *v1alpha1.IPPool) { p.Annotations = map[string]string{v1alpha1.AnnotationClusterAPIPaused: "x"} },
		"of a project":          func(p *v1alpha1.IPPool) { p.Spec.Visibility, p.Spec.Project = v1alpha1.VisibilityConsumer, "a" },
		"of another family":     func(p *v1alpha1.IPPool) { p.Spec.IPFamily = v1alpha1.IPv6 }, // the class was made again
		"of another class":      func(p *v1alpha1.IPPool) { p.Spec.ClassNames = []string{"other"} },
	} {
		w := newWorld(t)
		w.demands(28, 1)
		w.settles()
		w.passes(settle)
		pool := w.pools()[0]
		change(&pool)
		must(t, w.store.Update(t.Context(), &pool))
		w.settles()
		if n := len(w.pools()); n != 2 {
			t.Errorf("%s: there are %d pools, want another one", name, n)
		}
	}
}

func TestInvalidParameterIsNamed(t *testing.T) {
	for want, edit := range map[string]func(map[string]string){
		"parameters.poolPrefixLength is missing: set it to the prefix length of each pool": func(p map[string]string) { delete(p, "poolPrefixLength") },
		`parameters.poolPrefixLength is "33": set it to a number from 1 to 32`:             func(p map[string]string) { p["poolPrefixLength"] = "33" },
		`parameters.poolPrefixLength is "/24": set it to a number from 1 to 32`:            func(p map[string]string) { p["poolPrefixLength"] = "/24" },
		`parameters.spare is "-1": set it to a number from 0 to 1048576`:                   func(p map[string]string) { p["spare"] = "-1" },
		`parameters.maxPools is "0": set it to a number from 1 to 1024`:                    func(p map[string]string) { p["maxPools"] = "0" },
		`parameters.releaseAfter is "10": set it to a duration of 0 or more, such as 10m`:  func(p map[string]string) { p["releaseAfter"] = "10" },
		`parameters.releaseAfter is "-1s": set it to a duration of 0 or more, such as 10m`: func(p map[string]string) { p["releaseAfter"] = "-1s" },
	} {
		w := newWorld(t)
		w.demands(28, 1)
		w.edit(func(class *v1alpha1.IPClass) { edit(class.Spec.Parameters) })
		w.settles()
		w.expects(want, 0, ReasonInvalidParameters)
		if message := meta.FindStatusCondition(w.class().Status.Conditions, ConditionProvisioned).Message; message != want {
			t.Errorf("got  %s\nwant %s", message, want)
		}
	}
}
