package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// logLine represents a line of a manager's log, as --logging-format=json writes it.
type logLine map[string]any

// level returns 0 for a line that is always written; errors have none.
func (l logLine) level() int {
	v, ok := l["v"].(float64)
	if !ok {
		return -1
	}
	return int(v)
}

// logLines returns those of the manager's log for which want is true.
func logLines(want func(logLine) bool) []logLine {
	GinkgoHelper()
	file, err := os.Open(running.Managers[0].LogPath())
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = file.Close() }()
	var lines []logLine
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		line := logLine{}
		if json.Unmarshal(scanner.Bytes(), &line) == nil && want(line) {
			lines = append(lines, line)
		}
	}
	Expect(scanner.Err()).NotTo(HaveOccurred())
	return lines
}

// stepsOf returns the messages about a claim, each with the pool that it names.
func stepsOf(claim *v1alpha1.IPClaim) func() []string {
	return func() []string {
		var steps []string
		for _, line := range logLines(func(l logLine) bool {
			return l["claim"] == fmt.Sprintf("IPClaim %s/%s", claim.Namespace, claim.Name) || l["claim"] == claim.Namespace+"/"+claim.Name
		}) {
			step := fmt.Sprint(line["msg"])
			if pool, ok := line["pool"]; ok {
				step += " | " + fmt.Sprint(pool)
			}
			steps = append(steps, step)
		}
		return steps
	}
}

var _ = Describe("The log of the operator", Ordered, func() {
	const team = "log"

	BeforeAll(func(ctx context.Context) {
		specs.Namespace(ctx, k8s, team)
		specs.Created(ctx, k8s, build.Class("logged").Length(32).Obj())
		paused := build.Pool("log-a-paused").CIDR("10.240.0.0/32").Classes("logged").Obj()
		paused.Annotations = map[string]string{"ipam.cadastre.dev/paused": "true"}
		specs.Created(ctx, k8s, paused)
		full := specs.Pool(ctx, k8s, build.Pool("log-b-full").CIDR("10.240.0.1/32").Classes("logged").Obj())
		specs.Pool(ctx, k8s, build.Pool("log-c-free").CIDR("10.240.1.0/24").Classes("logged").Obj())
		specs.Created(ctx, k8s, build.Claim(team, "first").Pool(full.Name).Length(32).Obj())
		Eventually(available(ctx, full.Name)).Should(Equal("0"))
	})

	It("shows at -v=2 each step of a claim, its pools, and why each was passed over", func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, build.Claim(team, "followed").Class("logged").Obj())
		Expect(claim.Status.Phase).To(Equal(v1alpha1.ClaimBound))
		Eventually(stepsOf(claim)).Should(HaveExactElements(
			"Passed over a pool | pool log-a-paused",
			"Resolved a request",
			"Passed over a pool | pool log-b-full",
			"Holding a block | pool log-c-free",
			"Recorded a block; waiting until the watch shows it | pool log-c-free",
			"Allocated a block | pool log-c-free",
			"Admitted a claim | pool log-c-free",
		))
		for _, line := range logLines(func(l logLine) bool {
			return l["record"] == team+"/"+claim.Spec.AllocationName && l["logger"] != "history"
		}) {
			Expect(line).To(SatisfyAll(HaveKey("claim"), HaveKey("pool"), HaveKeyWithValue("block", claim.Spec.CIDR)), "%v", line)
		}
		passed := logLines(func(l logLine) bool { return l["msg"] == "Passed over a pool" && l["pool"] == "pool log-b-full" })
		Expect(passed).NotTo(BeEmpty())
		Expect(passed[len(passed)-1]["reason"]).To(ContainSubstring("no free /32 in pool log-b-full"))

		deleted(ctx, claim)
		Eventually(stepsOf(claim)).Should(ContainElement("Released a record | pool log-c-free"))
	})

	It("shows at -v=1 why a claim waits, and when it is bound", func(ctx context.Context) {
		first, waits := specs.Stored(ctx, k8s, build.Claim(team, "first").Obj()), specs.Created(ctx, k8s, build.Claim(team, "waits").Pool("log-b-full").Length(32).Obj())
		Expect(waits.Status.Phase).To(Equal(v1alpha1.ClaimExhausted))
		deleted(ctx, first)
		Eventually(phase(ctx, waits)).Should(Equal(v1alpha1.ClaimBound))
		changes := func() []string {
			var all []string
			for _, l := range logLines(func(l logLine) bool { return l["claim"] == "IPClaim "+team+"/waits" && l.level() == 1 }) {
				all = append(all, fmt.Sprintf("%v: %v", l["msg"], l["reason"]))
			}
			return all
		}
		Eventually(changes).Should(ContainElements("Admitted a claim: PoolExhausted", "The status of a claim changed: Bound"))
	})

	It("shows nothing at -v=0 of claims that come and go but their history", func(ctx context.Context) {
		begin := time.Now()
		for n := range 100 {
			claim := specs.Created(ctx, k8s, build.Claim(team, fmt.Sprint("busy-", n)).Pool("log-c-free").Length(32).Obj())
			deleted(ctx, claim)
		}
		Eventually(available(ctx, "log-c-free")).Should(Equal("256"))
		Expect(k8s.List(ctx, &v1alpha1.IPClaimList{}, client.InNamespace(team))).To(Succeed())
		always := logLines(func(l logLine) bool {
			ts, _ := l["ts"].(float64) // in milliseconds
			return l.level() <= 0 && l["action"] == nil && time.UnixMilli(int64(ts)).After(begin)
		})
		Expect(always).To(BeEmpty())
	})
})
