// Package tenants lets a hostile tenant, who has the rights of the role edit and no others, misuse
// the operator beside an honest one.
package tenants

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/framework/authority"
)

const (
	// attackers is the number of clients of the hostile tenant, each as fast as it can be.
	attackers = 6
	// grace is how long an IPAllocation may be without claim: shorter than in use, so that the end
	// of the test need not wait for long.
	grace = 20 * time.Second
	// aloneFor is the time for which the honest tenant is measured without the other.
	aloneFor = 5 * time.Second
	// longestStorm bounds the misuse, as a multiple of the requested time.
	longestStorm = 15
	// answeredWithin bounds the time of an honest request.
	answeredWithin = 5 * time.Second
	// memoryShare is the share of the container's memory limit that a replica may use.
	memoryShare = 0.5
)

// TestHostileTenantIsContained has the first line that docs/operations.md asks for: the webhooks
// take client certificates of the API server alone.
func TestHostileTenantIsContained(t *testing.T) {
	a := authority.New(t)
	certificate, key := a.Issue(t, x509.ExtKeyUsageClientAuth, "kube-apiserver")
	running := suite.Start(t, cluster.Options{
		Managers: 2, ControllerManager: true, ClusterAPICRDs: true,
		ManagerArgs:    []string{"--orphan-grace=" + grace.String(), "--webhook-client-ca=" + a.File(t)},
		APIServerFlags: map[string]string{"admission-control-config-file": authority.AdmissionConfig(t, certificate, key)},
	})
	running.Patience = time.Minute
	storm, seed := suite.Setting(t, "STORM", usualStorm(), time.ParseDuration), seedOf(t)
	t.Logf("seed %d, %s of misuse by %d clients", seed, storm, attackers)
	w := prepare(running)

	good := newHonest(w)
	began := time.Now()
	alone := good.measured(t.Context(), func(creates) bool { return time.Since(began) >= aloneFor })
	register := w.watchRegister()
	began = time.Now()
	during, misuses := attack(w, good, register, seed, storm)
	took := time.Since(began)
	register.end()
	t.Logf("seed %d: %d requests of the hostile tenant in %.0f s:\n%s", seed, misuses.sum(), took.Seconds(), misuses)
	t.Logf("honest creates alone: %s; beside it: %s", alone, during)
	t.Logf("paths in answers: %d, replaced: %d; calls by path without a client certificate: %d answered of %d",
		misuses.countAnswer(pathTold), w.replacements(), misuses.countAnswer(forged), misuses.countMisuse("a path that has leaked"))
	t.Logf("release until the honest claim that waits is bound: %s", figuresOf(good.waits))

	good.judge(during)
	misuses.judge(t)
	register.judge(t)
	w.judgeProcesses()
	w.judgeStart()
	w.judgeEnd(good)
}

// attack lets the hostile tenant misuse the operator beside the honest one: for as long as storm
// states, and on a slow machine for longer, until it was no tame misuse.
func attack(w *world, good *honest, r *register, seed uint64, storm time.Duration) (creates, *answers) {
	ctx, stop := context.WithCancel(w.Context())
	defer stop()
	all := &answers{by: map[string]map[string]*answerCount{}}
	var attacking sync.WaitGroup
	for n := range attackers {
		h := newHostile(w, good, random(seed, uint64(n)), all)
		attacking.Go(func() { h.attack(ctx) })
	}
	tame := func(during creates) []string {
		return slices.Concat(good.tame(during), all.tame(), r.tame())
	}
	began := time.Now()
	during := good.measured(w.Context(), func(c creates) bool {
		since := time.Since(began)
		return since >= storm && (len(tame(c)) == 0 || since >= longestStorm*storm)
	})
	stop()
	attacking.Wait()
	for _, missing := range tame(during) {
		w.Errorf("the misuse was too tame: %s", missing)
	}
	return during, all
}

// answers counts those that the clients of the hostile tenant get.
type answers struct {
	mu sync.Mutex
	// by has the counts by kind of misuse and answer.
	by map[string]map[string]*answerCount
}

// answerCount holds the answers of one kind to one kind of misuse.
type answerCount struct {
	count int
	// example is the text of the first one.
	example string
}

func (a *answers) count(misuse, answer string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.by[misuse] == nil {
		a.by[misuse] = map[string]*answerCount{}
	}
	if a.by[misuse][answer] == nil {
		a.by[misuse][answer] = &answerCount{}
		if err != nil {
			a.by[misuse][answer].example = err.Error()
		}
	}
	a.by[misuse][answer].count++
}

func (a *answers) sum() (n int) {
	for misuse := range a.by {
		n += a.countMisuse(misuse)
	}
	return n
}

// countMisuse counts the requests of one kind of misuse.
func (a *answers) countMisuse(misuse string) (n int) {
	for _, entry := range a.by[misuse] {
		n += entry.count
	}
	return n
}

// countAnswer counts the requests that were answered like that.
func (a *answers) countAnswer(answer string) (n int) {
	for _, all := range a.by {
		if entry := all[answer]; entry != nil {
			n += entry.count
		}
	}
	return n
}

// String returns a line for each kind of misuse, and one for each kind of refusal of it.
func (a *answers) String() string {
	var lines []string
	for _, misuse := range slices.Sorted(maps.Keys(a.by)) {
		line := fmt.Sprintf("%-28s %6d", misuse, a.countMisuse(misuse))
		var examples []string
		for _, answer := range slices.Sorted(maps.Keys(a.by[misuse])) {
			entry := a.by[misuse][answer]
			line += fmt.Sprintf("  %s: %d", answer, entry.count)
			if entry.example != "" {
				examples = append(examples, fmt.Sprintf("    %s: %.200s", answer, entry.example))
			}
		}
		lines = append(append(lines, line), examples...)
	}
	return strings.Join(lines, "\n")
}

// tame returns the missing kinds of misuse and of answers.
func (a *answers) tame() (missing []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range misuses {
		if n := a.countMisuse(m.name); n < leastOfEach() {
			missing = append(missing, fmt.Sprintf("%d requests of %q", n, m.name))
		}
	}
	for _, answer := range []string{stored, limitReached, quotaExceeded, tooManyUnclaimed, notAllowed, invalid} {
		if a.countAnswer(answer) == 0 {
			missing = append(missing, fmt.Sprintf("nothing was answered by %q", answer))
		}
	}
	return missing
}

// judge fails if there was an answer that no client should get.
func (a *answers) judge(test *testing.T) {
	test.Helper()
	for misuse, all := range a.by {
		if entry := all[defect]; entry != nil {
			test.Errorf("%s: %d times, such as %s", misuse, entry.count, entry.example)
		}
		if entry := all[forged]; entry != nil {
			test.Errorf("%s: a webhook has answered %d times", misuse, entry.count)
		}
	}
}

func random(seed, n uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, n)) }

// usualStorm returns how long the misuse lasts if STORM is not set.
func usualStorm() time.Duration { return suite.Sized(40*time.Second, 20*time.Second) }

// leastOfEach returns the lowest number of tries of each kind of misuse.
func leastOfEach() int { return suite.Sized(5, 2) }

func seedOf(t *testing.T) uint64 {
	t.Helper()
	return cmp.Or(suite.Seed(t, "SEED", 0), rand.Uint64N(1<<32))
}
