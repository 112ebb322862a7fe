package hostile

import (
	"bytes"
	"context"
	"errors"
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

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/test/framework/build"
	"github.com/cadastre-dev/cadastre/test/framework/cluster"
)

const (
	senders = 8
	// atLeast is how many are sent where MUTATIONS does not say, fewer by go test -short.
	atLeast, atLeastShort = 10000, 2000
	// slowest is how long an answer may take: what the API server gives admission,
	// and some.
	slowest = 10 * time.Second
)

func TestEveryMutationIsRefusedForAFieldOrReconciled(t *testing.T) {
	c, err := cluster.Start(t.Context(), cluster.Options{Managers: 2, Progress: t.Output(), ManagerArgs: []string{"--orphan-grace=2s", "--unclaimed-limit=100000"}})
	must(t, err)
	t.Cleanup(func() { must(t, c.Stop()) })
	admin := prepare(t, c)
	processes := []int{c.Managers[0].PID(), c.Managers[1].PID()}
	usual := atLeast
	if testing.Short() {
		usual = atLeastShort
	}
	seed, count := number(t, "SEED", 1), number(t, "MUTATIONS", usual)
	if seed == 0 {
		seed = rand.Int()
	}
	t.Logf("seed %d", seed)

	began := time.Now()
	codes, all := map[int]int{}, make([]*sender, senders)
	var sending sync.WaitGroup
	for n := range all {
		transport, err := rest.TransportFor(c.Config())
		must(t, err)
		all[n] = &sender{
			t: t, http: &http.Client{Transport: transport, Timeout: slowest}, host: strings.TrimSuffix(c.Config().Host, "/"),
			random: rand.New(rand.NewPCG(uint64(seed), uint64(n))), codes: map[int]int{},
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
	reconciled(t, admin)
	for i, m := range c.Managers {
		log, err := os.ReadFile(m.LogPath())
		must(t, err)
		if !m.Running() || m.PID() != processes[i] || bytes.Contains(bytes.ToLower(log), []byte("panic")) {
			t.Errorf("%s panicked: see %s", m.Name, m.LogPath())
		}
	}
	must(t, admin.Create(t.Context(), build.Claim("default", "afterwards").Pool("base").Length(32).Obj()))
}

// prepare makes what valid objects refer to.
func prepare(t *testing.T, c *cluster.Cluster) client.Client {
	t.Helper()
	cfg := c.Config()
	cfg.QPS = -1
	scheme := runtime.NewScheme()
	must(t, errors.Join(v1alpha1.AddToScheme(scheme), ipamv1.AddToScheme(scheme)))
	must(t, c.InstallClusterAPICRDs(t.Context()))
	admin, err := client.New(cfg, client.Options{Scheme: scheme})
	must(t, err)
	must(t, admin.Create(t.Context(), build.Class("hosts").Length(32).Obj()))
	pool, local := build.Pool("base").CIDR("10.1.0.0/16").Classes("hosts").Label("zone", "a").Obj(), build.Pool("local").CIDR("10.2.0.0/16").In("default")
	must(t, errors.Join(admin.Create(t.Context(), pool), admin.Create(t.Context(), local)))
	claim := build.AddressClaim("default", "first").From(v1alpha1.GroupVersion.Group, string(v1alpha1.PoolKindLocalIPPool), "local").Obj()
	must(t, admin.Create(t.Context(), claim))
	must(t, wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		err := errors.Join(admin.Get(ctx, client.ObjectKeyFromObject(pool), pool), admin.Get(ctx, client.ObjectKeyFromObject(claim), claim))
		return pool.Status.Phase == v1alpha1.PoolReady && claim.Status.AddressRef.Name != "", err
	}))
	return admin
}

func sorted(codes map[int]int) string {
	var texts []string
	for _, code := range slices.Sorted(maps.Keys(codes)) {
		texts = append(texts, fmt.Sprintf("%d: %d", code, codes[code]))
	}
	return strings.Join(texts, ", ")
}

func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	must(t, err)
	return n
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
