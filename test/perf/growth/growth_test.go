// Package growth shows that a claim costs the operator as much work when many
// blocks are in use as when few are. Work is counted, not timed: how often each
// statement of the operator, and of the libraries that keep its view and its
// caches, is executed for a claim.
package growth

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/tools/cover"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

const (
	// few and many are the numbers of blocks in use when claims are counted.
	few, many = 200, 3000
	// claims are counted at each level.
	claims = 150
	// tolerated is the factor by which the counts may differ: a trie is a few levels deeper, and
	// some work depends on time and not on claims.
	tolerated = 1.15
)

// countedPackages returns the packages whose statements are counted.
func countedPackages() string {
	return strings.Join([]string{
		"github.com/cadastre-dev/cadastre/test/perf/growth/counted", // without which there is no counting
		"github.com/cadastre-dev/cadastre/internal/...", "github.com/cadastre-dev/cadastre/webhooks", "github.com/gaissmai/bart/...",
		"k8s.io/client-go/tools/cache", "sigs.k8s.io/controller-runtime/pkg/cache/...", "sigs.k8s.io/controller-runtime/pkg/controller/...",
	}, ",")
}

func TestClaimCostIsIndependentOfUsage(t *testing.T) {
	w := start(t)
	w.create(few)
	atFew := w.count(t)
	w.create(many - few - claims)
	atMany := w.count(t)

	before, after := atFew.total(), atMany.total()
	t.Logf("statements for a claim: %.0f with %d blocks in use, %.0f with %d", before, few, after, many)
	if after > before*tolerated {
		t.Errorf("a claim takes %.2f times the work with %d blocks in use instead of %d; the largest growth:\n%s", after/before, many, few, atMany.grown(atFew))
	}
}

// counts holds how often the statements of a file are executed for a claim.
type counts map[string]float64

func (c counts) total() float64 {
	sum := 0.0
	for _, n := range c {
		sum += n
	}
	return sum
}

// grown lists the files with the largest difference.
func (c counts) grown(from counts) string {
	files := slices.SortedFunc(maps.Keys(c), func(a, b string) int { return cmp.Compare(c[b]-from[b], c[a]-from[a]) })
	var b strings.Builder
	for _, file := range files[:min(len(files), 8)] {
		fmt.Fprintf(&b, "  %s: %.0f -> %.0f\n", file, from[file], c[file])
	}
	return b.String()
}

// world holds a control plane, with one replica of the operator that counts.
type world struct {
	Gomega
	*suite.World
	counters string // where the operator serves them
	made     int
}

func start(t *testing.T) *world {
	_, err := cluster.Binary("etcd")
	suite.Must(t, err)
	w := &world{Gomega: NewWithT(t)}
	w.SetDefaultEventuallyTimeout(time.Minute)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	w.Expect(err).NotTo(HaveOccurred())
	w.counters = listener.Addr().String()
	w.Expect(listener.Close()).To(Succeed())
	t.Setenv("COUNTERS", w.counters)
	t.Setenv("GOCOVERDIR", t.TempDir()) // for the counts that it writes when it ends
	w.World = suite.Start(t, cluster.Options{Managers: 1, ManagerBinary: w.build(t)})
	w.Pools(build.Pool("p").CIDR("10.0.0.0/12").Obj())
	w.Namespace("growth")
	return w
}

// build builds the operator with counters.
func (w *world) build(t *testing.T) string {
	binary := filepath.Join(t.TempDir(), "counted")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-covermode=atomic", "-coverpkg="+countedPackages(), "-o", binary, "./counted").CombinedOutput()
	w.Expect(err).NotTo(HaveOccurred(), string(out))
	return binary
}

// ask sends the operator a request about its counters.
func (w *world) ask(what string) {
	response, err := http.Get("http://" + w.counters + what)
	w.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(response.StatusCode).To(Equal(http.StatusOK), string(text))
}

// create creates claims with several clients, and waits until all are Bound.
func (w *world) create(n int) {
	var creating sync.WaitGroup
	names := make(chan string)
	for range 8 {
		creating.Go(func() {
			for name := range names {
				w.Expect(w.Create(w.Context(), build.Claim("growth", name).Pool("p").Length(28).Obj())).To(Succeed())
			}
		})
	}
	for range n {
		w.made++
		names <- fmt.Sprintf("c-%05d", w.made)
	}
	close(names)
	creating.Wait()
	for i := w.made - 20; i <= w.made; i++ { // the last ones: 8 workers overtake each other
		w.Eventually(func() v1alpha1.ClaimPhase {
			claim := &v1alpha1.IPClaim{}
			w.Expect(w.Get(w.Context(), client.ObjectKey{Namespace: "growth", Name: fmt.Sprintf("c-%05d", i)}, claim)).To(Succeed())
			return claim.Status.Phase
		}).Should(Equal(v1alpha1.ClaimBound))
	}
}

// count counts the work for some more claims.
func (w *world) count(t *testing.T) counts {
	w.ask("/clear")
	w.create(claims)
	dir := t.TempDir()
	w.ask("/write?" + dir)
	text := filepath.Join(dir, "counts.txt")
	out, err := exec.CommandContext(w.Context(), "go", "tool", "covdata", "textfmt", "-i="+dir, "-o="+text).CombinedOutput()
	w.Expect(err).NotTo(HaveOccurred(), string(out))
	files, err := cover.ParseProfiles(text)
	w.Expect(err).NotTo(HaveOccurred())
	found := counts{}
	for _, file := range files {
		for _, block := range file.Blocks {
			found[file.FileName] += float64(block.NumStmt*block.Count) / claims
		}
	}
	return found
}
