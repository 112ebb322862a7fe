package hubs

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

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

// measureRates compares the rates of both classes in one cluster, in turn, while the hub is away.
func (w *world) measureRates() {
	w.Helper()
	const rounds = 11
	s := w.spokes[0]
	w.hub.Created(build.Class("rates").Obj())
	w.hub.Pools(build.Pool("rates").CIDR("10.65.0.0/24").Classes("rates").Obj())
	pool := build.Pool(local).CIDR("10.66.0.0/24").Classes(local).Obj()
	s.Created(build.Class(local).Length(32).Obj(), newClass(remote, 32, 24, 128, "rates"))
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
		w.Errorf("with the hub away, the rate is %.2f of that without provisioner: %v", ratio, ratios)
	}
	w.Rates = fmt.Sprintf("\nClaims of a cluster while the hub is away, in turn with those of a class without provisioner: 8 clients in a closed loop, the median of %d rounds. "+
		"The ratio of the rates of a round is %.2f (%.2f to %.2f).\n\n| class | claims/s | p95 of the create call, ms |\n|---|---:|---:|\n", rounds, ratio, ratios[0], ratios[rounds-1])
	for _, row := range [][2]string{{local, "without provisioner"}, {remote, "with a range of the hub, which is away"}} {
		class, name := row[0], row[1]
		slices.SortFunc(got[class], func(a, b rate) int { return int(a.claims - b.claims) })
		p95s := []time.Duration{}
		for _, r := range got[class] {
			p95s = append(p95s, r.p95)
		}
		slices.Sort(p95s)
		w.Rates += fmt.Sprintf("| %s | %.0f | %.1f |\n", name, got[class][rounds/2].claims, p95s[rounds/2].Seconds()*1000)
	}
	w.Log(w.Rates)
	s.Await("the claims are gone", func(context.Context) bool { return len(s.witness.Left()) == 0 })
	s.Deleted(build.Class(remote).Obj(), pool)
	s.Gone(pool)
}

// rate runs clients that create a claim, which is bound in the answer, and delete it.
func (s *spoke) rate(class string) rate {
	s.Helper()
	const clients, lasts = 8, 3 * time.Second
	var mu sync.Mutex
	var took []time.Duration
	var working sync.WaitGroup
	begin := time.Now()
	for n := range clients {
		working.Go(func() {
			for serial := 0; time.Since(begin) < lasts; serial++ {
				claim := build.Claim("default", fmt.Sprintf("%s-%d-%d-%d", class, begin.Unix(), n, serial)).Class(class).Obj()
				began := time.Now()
				err := s.Create(s.Context(), claim)
				ended := time.Since(began)
				if err != nil || claim.Status.Phase != v1alpha1.ClaimBound {
					s.Errorf("claim %s is %q in the answer: %v", claim.Name, claim.Status.Phase, err)
					return
				}
				if err := client.IgnoreNotFound(s.Delete(s.Context(), claim)); err != nil {
					s.Error(err)
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
