package hostile

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

const (
	senders = 8
	// atLeast is the number of mutations sent if MUTATIONS is not set, fewer by go test -short.
	atLeast, atLeastShort = 10000, 2000
	// slowest bounds the time of an answer: the timeout that the API server gives admission, and
	// some.
	slowest = 10 * time.Second
)

func TestEveryMutationIsRejectedOrReconciled(t *testing.T) {
	w := suite.Start(t, cluster.Options{Managers: 2, ManagerArgs: []string{"--orphan-grace=2s", "--unclaimed-limit=100000"}})
	prepare(w)
	processes := []int{w.Managers[0].PID(), w.Managers[1].PID()}
	usual := atLeast
	if testing.Short() {
		usual = atLeastShort
	}
	seed, count := suite.Seed(t, "SEED", 1), suite.Setting(t, "MUTATIONS", usual, strconv.Atoi)
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)

	began := time.Now()
	codes, all := map[int]int{}, make([]*sender, senders)
	var sending sync.WaitGroup
	for n := range all {
		transport, err := rest.TransportFor(w.Config())
		suite.Must(t, err)
		all[n] = &sender{
			t: t, http: &http.Client{Transport: transport, Timeout: slowest}, host: strings.TrimSuffix(w.Config().Host, "/"),
			random: rand.New(rand.NewPCG(seed, uint64(n))), codes: map[int]int{},
		}
		sending.Go(func() {
			for i := range count / senders {
				all[n].send(fmt.Sprintf("seed %d, sender %d, mutation %d", seed, n, i))
			}
		})
	}
	sending.Wait()
	for _, s := range all {
		for code, n := range s.codes {
			codes[code] += n
		}
	}
	t.Logf("seed %d: %d mutations in %.1f s, by status code: %v", seed, count/senders*senders, time.Since(began).Seconds(), sorted(codes))
	reconciled(t, w)
	for i, m := range w.Managers {
		log, err := os.ReadFile(m.LogPath())
		suite.Must(t, err)
		if !m.Running() || m.PID() != processes[i] || bytes.Contains(bytes.ToLower(log), []byte("panic")) {
			t.Errorf("%s panicked: see %s", m.Name, m.LogPath())
		}
	}
	suite.Must(t, w.Create(t.Context(), build.Claim("default", "afterwards").Pool("base").Length(32).Obj()))
}

// prepare makes the objects that valid objects refer to.
func prepare(w *suite.World) {
	w.Helper()
	suite.Must(w, w.InstallClusterAPICRDs(w.Context()))
	w.Created(build.Class("hosts").Length(32).Obj())
	w.Pools(build.Pool("base").CIDR("10.1.0.0/16").Classes("hosts").Label("zone", "a").Obj())
	w.Created(build.Pool("local").CIDR("10.2.0.0/16").In("default"))
	claim := build.AddressClaim("default", "first").From(v1alpha1.GroupVersion.Group, string(v1alpha1.PoolKindLocalIPPool), "local").Obj()
	w.Created(claim)
	w.Served(claim)
}

func sorted(codes map[int]int) string {
	var texts []string
	for _, code := range slices.Sorted(maps.Keys(codes)) {
		texts = append(texts, fmt.Sprintf("%d: %d", code, codes[code]))
	}
	return strings.Join(texts, ", ")
}

// TestDryRunWithTooManyLabelsIsRejected expects an answer that is short, and without a
// path of the webhooks in it. An edit of an object as large is served.
func TestDryRunWithTooManyLabelsIsRejected(t *testing.T) {
	w := suite.Start(t, cluster.Options{Managers: 1})
	w.Created(build.Class("hosts").Length(32).Obj())
	w.Pools(build.Pool("base").CIDR("10.1.0.0/16").Classes("hosts").Obj())
	claim := build.Claim("default", "many").Class("hosts").Obj()
	claim.Labels = map[string]string{}
	for n := range 20_000 {
		claim.Labels[fmt.Sprint("-", n)] = "/"
	}
	began := time.Now()
	err := w.Create(t.Context(), claim, client.DryRunAll)
	if took := time.Since(began); !apierrors.IsInvalid(err) || took > slowest/2 {
		t.Fatalf("it is answered after %v: %v", took, err)
	}
	if text := err.Error(); len(text) > 1<<10 || !strings.Contains(text, "metadata.labels: Too many: 20000") || strings.Contains(text, "/mutate-") {
		t.Errorf("it is answered with %d bytes: %.2000s", len(text), text)
	}

	small := build.Claim("default", "small").Class("hosts").Obj()
	suite.Must(t, w.Create(t.Context(), small))
	edited := small.DeepCopy()
	edited.Labels = map[string]string{}
	for n := range 5_000 {
		edited.Labels[fmt.Sprint("label-", n)] = "x"
	}
	suite.Must(t, w.Patch(t.Context(), edited, client.MergeFrom(small))) // no webhook is asked
	before := edited.DeepCopy()
	edited.Spec.ReclaimPolicy = "Retain"
	if err := w.Patch(t.Context(), edited, client.MergeFrom(before)); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.reclaimPolicy") {
		t.Errorf("an edit of one with 5,000 labels is answered: %v", err)
	}
	suite.Must(t, w.Delete(t.Context(), edited))
}
