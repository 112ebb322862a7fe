package restore

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// previous is the build from which the operator is upgraded. Replicas of those before it do not
// mark their answers: while they run, the webhook of the second attempt, whose path they do not
// know, would be asked too.
const previous = "d06650e"

// checkedOut returns the previous build: its manifests, and its manager in bin. If the repository
// does not have it, because it is a shallow clone, the test is skipped.
func checkedOut(t *testing.T) string {
	t.Helper()
	root := suite.ModuleRoot(t)
	git := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = root
		return cmd.Output()
	}
	if _, err := git("cat-file", "-e", previous+"^{commit}"); err != nil {
		t.Skipf("NOT TESTED: the repository does not have the previous build, %s (a shallow clone?): %v", previous, err)
	}
	archive, err := git("archive", previous)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	tar := exec.CommandContext(t.Context(), "tar", "x", "-C", dir)
	tar.Stdin = bytes.NewReader(archive)
	if out, err := tar.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", filepath.Join("bin", "manager"), "./cmd/manager")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v: %s", previous, err, out)
	}
	return dir
}

// TestUpgradeFromPreviousBuildUnderLoad applies the manifests and replaces the replicas, one
// by one, while claims arrive. None is refused, but for connections that are cut with a replica
// that ends, which the client's next attempt hides.
func TestUpgradeFromPreviousBuildUnderLoad(t *testing.T) {
	before := checkedOut(t)
	w := start(t, cluster.Options{
		Managers: 2, ManagerBinary: filepath.Join(before, "bin", "manager"), Manifests: filepath.Join(before, "config", "default"),
		ManagerEnv: []string{"CADASTRE_TEST_UNSAFE_ORPHAN_GRACE=true"}, // for its --orphan-grace
	})
	w.pools()
	const clients = 4
	l := w.begin("load", clients, newSeed(t))
	say := func(what string, begin time.Time) {
		t.Logf("%s took %v: %v", what, time.Since(begin).Round(time.Millisecond), l)
	}
	begin := time.Now()
	l.creates(150)
	say("the previous build alone", begin)

	begin = time.Now()
	w.Expect(w.Upgrade(t.Context())).To(Succeed())
	say("applying the new manifests", begin)
	l.creates(50)
	for _, old := range w.Managers[:2] {
		begin = time.Now()
		added, err := w.AddManager(t.Context())
		w.Expect(err).NotTo(HaveOccurred())
		w.Expect(old.Stop()).To(Succeed())
		say(fmt.Sprintf("%s in place of %s", added.Name, old.Name), begin)
		l.creates(100)
	}
	l.creates(100)
	l.stop()
	t.Logf("in all: %v", l)
	w.Expect(l.refused).To(BeEmpty())
	w.Expect(l.lost).To(BeZero(), "the client's next attempts hide that a connection was cut")
	w.Expect(l.cut).To(BeNumerically("<=", clients*2*3), "a replica that ends cuts off the requests under way, and no more")
	w.agrees()
	w.serves("after")
}
