package hubs

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// The classes whose rates are compared: local has a pool and no provisioner, remote a range of the hub.
const local, remote = "local", "remote"

// rate holds what clients in a closed loop got in a round.
type rate struct {
	claims float64 // per second
	p95    time.Duration
}

// leastRatio is the least share of the rate of local that remote must have: it has the same work, and a shared
// machine is not even.
const leastRatio = 0.9

// TestRateIsTheSameWithoutHub compares the rates of both classes in one cluster, in turn, while the hub is away.
// Its figures are written to the file HUBS_RATES.
func TestRateIsTheSameWithoutHub(t *testing.T) {
	if testing.Short() {
		t.Skip("a measurement")
	}
	const rounds = 41
	w := start(t, 0, "east")
	s := w.spokes[0]
	w.hub.Created(build.Class("rates").Obj())
	w.hub.Pools(build.Pool("rates").CIDR("10.65.0.0/18").Classes("rates").Obj())
	pool := build.Pool(local).CIDR("10.66.0.0/18").Classes(local).Obj()
	s.Created(build.Class(local).Length(32).Obj(), newClass(remote, 32, 18, 128, "rates"))
	s.Pools(pool)
	first := build.Claim("default", "first").Class(remote).Obj()
	s.Created(first)
	s.Bound(first)
	s.Deleted(first)
	s.cut()
	got, ratios := map[string][]rate{}, []float64(nil)
	for round := range rounds {
		order := []string{local, remote}
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, class := range order {
			got[class] = append(got[class], s.rate(class))
		}
		ratios = append(ratios, got[remote][round].claims/got[local][round].claims)
	}
	s.link.Restore(s.hubAddress)
	slices.Sort(ratios)
	ratio := ratios[rounds/2]
	if ratio < leastRatio {
		t.Errorf("with the hub away, the rate is %.2f of that without provisioner: %v", ratio, ratios)
	}
	text := fmt.Sprintf("\n8 clients of a cluster whose hub is away, in a closed loop, on %s: %d rounds of a second for each class, in turn. The ratio of the rates of a round is %.2f (quartiles %.2f and %.2f).\n\n"+
		"| class | claims/s, median | p95 of the create call, ms, median |\n|---|---:|---:|\n", time.Now().UTC().Format(time.DateOnly), rounds, ratio, ratios[rounds/4], ratios[rounds*3/4])
	for _, row := range [][2]string{{local, "without provisioner"}, {remote, "with a range of the hub"}} {
		all := got[row[0]]
		slices.SortFunc(all, func(a, b rate) int { return cmp.Compare(a.claims, b.claims) })
		claims := all[rounds/2].claims
		slices.SortFunc(all, func(a, b rate) int { return cmp.Compare(a.p95, b.p95) })
		text += fmt.Sprintf("| %s | %.0f | %.1f |\n", row[1], claims, all[rounds/2].p95.Seconds()*1000)
	}
	report(t, "HUBS_RATES", text+"\n")
}

// rate runs clients that create a claim, which is bound in the answer, and delete it.
func (s *spoke) rate(class string) rate {
	s.Helper()
	const clients, lasts = 8, time.Second
	var mu sync.Mutex
	var took []time.Duration
	var working sync.WaitGroup
	begin := time.Now()
	for n := range clients {
		working.Go(func() {
			for serial := 0; time.Since(begin) < lasts; serial++ {
				claim := build.Claim("default", fmt.Sprintf("%s-%d-%d-%d", class, begin.UnixMilli(), n, serial)).Class(class).Obj()
				began := time.Now()
				err := s.Create(s.Context(), claim)
				ended := time.Since(began)
				if err != nil || claim.Status.Phase != v1alpha1.ClaimBound {
					s.Errorf("claim %s is %q in the answer: %v", claim.Name, claim.Status.Phase, err)
					return
				}
				mu.Lock()
				took = append(took, ended)
				mu.Unlock()
			}
		})
	}
	working.Wait()
	slices.Sort(took)
	if len(took) == 0 {
		s.Fatal("no claim was created")
	}
	return rate{float64(len(took)) / time.Since(begin).Seconds(), took[len(took)*95/100]}
}
