package convert

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

func TestPoolRecordNamesAreUnique(t *testing.T) {
	long := strings.Repeat("a", 200) + "." + strings.Repeat("b", 52) // 253 characters
	pools := []ipam.PoolKey{
		ipam.PoolNamed("p"), ipam.PoolNamed("team.p"), ipam.PoolNamed("local.team.p"), ipam.PoolNamed(long),
		ipam.PoolNamed(long[:252] + "c"), ipam.PoolNamed(long[:246]), ipam.PoolNamed(long[:247]),
		ipam.LocalPoolNamed("team", "p"), ipam.LocalPoolNamed("team", "p.q"), ipam.LocalPoolNamed("team", "q"),
		ipam.LocalPoolNamed("other", "p"), ipam.LocalPoolNamed("team", long), ipam.LocalPoolNamed("other", long),
		ipam.LocalPoolNamed(strings.Repeat("n", 63), long), ipam.LocalPoolNamed("team", strings.Repeat("a.", 126)+"a"),
	}
	// A pool that is named as the record of another one is.
	for _, key := range []ipam.PoolKey{pools[3], pools[11], pools[7]} {
		pools = append(pools, ipam.PoolNamed(strings.TrimPrefix(RecordOfPool("cadastre-system", key).Name, "ippool.")))
	}
	seen := map[ipam.Name]ipam.PoolKey{}
	for _, pool := range pools {
		name := RecordOfPool("cadastre-system", pool)
		if name.Namespace != "cadastre-system" {
			t.Errorf("the record of %+v lies in %s", pool, name.Namespace)
		}
		if errs := validation.IsDNS1123Subdomain(name.Name); len(errs) > 0 {
			t.Errorf("the record of %+v is named %s: %v", pool, name, errs)
		}
		if other, ok := seen[name]; ok {
			t.Errorf("the records of %+v and %+v have the name %s", pool, other, name)
		}
		seen[name] = pool
		if got := PoolOf(HolderOfPool(pool)); got != pool {
			t.Errorf("PoolOf(HolderOfPool(%+v)) = %+v", pool, got)
		}
		if !HolderOfPool(pool).IsPool() {
			t.Errorf("%s is not known for a pool", HolderOfPool(pool))
		}
	}
	for pool, want := range map[ipam.PoolKey]string{
		ipam.PoolNamed(long[:246]): "ippool." + long[:246], // as long as a name can be
		ipam.PoolNamed("team.p"):   "ippool.team.p", ipam.LocalPoolNamed("team", "p.q"): "localippool.team.p.q",
	} {
		if got := RecordOfPool("cadastre-system", pool).Name; got != want {
			t.Errorf("the record of %+v is named %s, want %s", pool, got, want)
		}
	}
}

func TestHolderOfPoolHasGroupOfKind(t *testing.T) {
	for kind, want := range map[ipam.PoolKind]string{
		ipam.PoolKindIPPool: "ipam.cadastre.dev", ipam.PoolKindLocalIPPool: "ipam.cadastre.dev",
		ipam.PoolKindInClusterIPPool: "ipam.cluster.x-k8s.io", ipam.PoolKindGlobalInClusterIPPool: "ipam.cluster.x-k8s.io",
	} {
		if got := HolderOfPool(ipam.PoolOfKind(kind, "team", "p")).Group; got != want {
			t.Errorf("%s is of the group %s, want %s", kind, got, want)
		}
	}
}

// TestClaimRecordNamesAreValid tries every character that a name can
// have, beside the last, at the place where a long name is cut.
func TestClaimRecordNamesAreValid(t *testing.T) {
	tail := strings.Repeat("z", longestName)
	for name, claim := range map[string]string{
		"short":                       "a",
		"as long as is not cut":       strings.Repeat("a", 244),
		"a dot where it is cut":       strings.Repeat("a", 243) + "." + tail[:9],
		"a hyphen where it is cut":    strings.Repeat("a", 243) + "-" + tail[:9],
		"hyphens until it is cut":     strings.Repeat("a", 200) + strings.Repeat("-", 44) + tail[:9],
		"a dot and hyphens before":    strings.Repeat("a", 200) + ".b" + strings.Repeat("-", 42) + tail[:9],
		"one character, then hyphens": "a" + strings.Repeat("-", 251) + "a",
	} {
		holder := HolderOfClaim(ipam.Name{Namespace: "team", Name: claim})
		for _, record := range []ipam.Name{RecordOfAttempt(holder, "12345678"), RecordOfHolder(holder, "uid")} {
			if errs := validation.IsDNS1123Subdomain(record.Name); len(errs) > 0 {
				t.Errorf("%s: the record is named %s: %v", name, record.Name, errs)
			}
		}
	}
	one, other := strings.Repeat("a", 244)+strings.Repeat("b", 9), strings.Repeat("a", 244)+strings.Repeat("c", 9)
	if a, b := RecordOfHolder(HolderOfClaim(ipam.Name{Name: one}), "uid"), RecordOfHolder(HolderOfClaim(ipam.Name{Name: other}), "uid"); a == b {
		t.Errorf("claims whose names differ where they are cut have records of one name: %s", a.Name)
	}
}
