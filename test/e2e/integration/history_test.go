package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/observe/history"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// historyOf returns the entries of a block in the manager's log, which is JSON, in their order.
func historyOf(block string) func() []string {
	return func() []string {
		GinkgoHelper()
		file, err := os.Open(running.Managers[0].LogPath())
		Expect(err).NotTo(HaveOccurred())
		defer func() { _ = file.Close() }()
		var entries []string
		_, err = history.Read(file, func(e history.Entry) error {
			if e.Block.IsValid() && e.Block.String() == block {
				entries = append(entries, fmt.Sprintf("%s %s %s/%s by %s: %s", e.Action, e.State, e.HolderNamespace, e.Holder, e.RequestedBy, e.Reason))
			}
			return nil
		})
		Expect(err).NotTo(HaveOccurred())
		return entries
	}
}

var _ = Describe("The history", Ordered, func() {
	const team = "history"
	var retain func(*v1alpha1.IPClaimSpec)

	BeforeAll(func(ctx context.Context) {
		specs.Namespace(ctx, k8s, team)
		retain = func(s *v1alpha1.IPClaimSpec) { s.ReclaimPolicy = v1alpha1.ReclaimRetain }
		specs.Pool(ctx, k8s, build.Pool("history").CIDR("10.241.0.0/24").With(func(s *v1alpha1.IPPoolSpec) {
			s.AllowRetain = true
			s.RetentionPeriod = &metav1.Duration{Duration: 2 * time.Second}
		}).Obj())
		specs.Pool(ctx, k8s, build.Pool("history-kept").CIDR("10.241.2.0/24").With(func(s *v1alpha1.IPPoolSpec) { s.AllowRetain = true }).Obj())
		specs.Pool(ctx, k8s, build.Pool("history-cool").CIDR("10.241.1.0/24").With(func(s *v1alpha1.IPPoolSpec) {
			s.ReuseDelay = &metav1.Duration{Duration: 2 * time.Second}
		}).Obj())
	})

	It("shows a block from its grant to its release", func(ctx context.Context) {
		block := func(s *v1alpha1.IPClaimSpec) { s.CIDR = "10.241.0.7/32" }
		claim := specs.Created(ctx, k8s, build.Claim(team, "db").Pool("history").With(block).With(retain).Obj())
		Expect(k8s.Create(ctx, build.Claim(team, "second").Pool("history").With(block).Obj())).NotTo(Succeed())
		deleted(ctx, claim)
		Eventually(historyOf("10.241.0.7/32")).Should(HaveExactElements(
			"Granted  history/db by admin: Allocated",
			"Refused  history/second by admin: Conflict",
			"Retained Retained history/db by admin: HolderDeleted",
			"Released  history/db by admin: RetentionExpired",
		))
	})

	It("shows the next holder of a retained block, and that a person released it", func(ctx context.Context) {
		block := func(s *v1alpha1.IPClaimSpec) { s.CIDR = "10.241.2.8/32" }
		claim := specs.Created(ctx, k8s, build.Claim(team, "kept").Pool("history-kept").With(block).With(retain).Obj())
		deleted(ctx, claim)
		Eventually(historyOf("10.241.2.8/32")).Should(HaveLen(2))
		claim = specs.Created(ctx, k8s, build.Claim(team, "kept").Pool("history-kept").With(block).With(retain).Obj())
		record := specs.RecordOf(claim)
		Eventually(func() types.UID { return specs.Stored(ctx, k8s, record).Spec.ClaimRef.UID }).Should(Equal(claim.UID))
		deleted(ctx, claim)
		Eventually(historyOf("10.241.2.8/32")).Should(HaveLen(4))
		deleted(ctx, record)
		Eventually(historyOf("10.241.2.8/32")).Should(HaveExactElements(
			"Granted  history/kept by admin: Allocated",
			"Retained Retained history/kept by admin: HolderDeleted",
			"Granted  history/kept by admin: TakenOver",
			"Retained Retained history/kept by admin: HolderDeleted",
			"Released  history/kept by admin: Deleted",
		))
	})

	It("shows that a block cools down", func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, build.Claim(team, "cools").Pool("history-cool").With(func(s *v1alpha1.IPClaimSpec) { s.CIDR = "10.241.1.7/32" }).Obj())
		deleted(ctx, claim)
		Eventually(historyOf("10.241.1.7/32")).Should(HaveExactElements(
			"Granted  history/cools by admin: Allocated",
			"Retained Cooling history/cools by admin: HolderDeleted",
			"Released  history/cools by admin: ReuseDelayOver",
		))
	})

	It("shows the blocks that pools get and release", func(ctx context.Context) {
		pool := specs.Pool(ctx, k8s, build.Pool("history-child").Child("history", 28).Obj())
		block := pool.Spec.CIDR
		deleted(ctx, pool)
		Eventually(historyOf(block)).Should(HaveExactElements(
			"Granted  /history-child by admin: Allocated",
			"Released  /history-child by admin: HolderDeleted",
		))
	})

	It("shows that a record without holder was collected", func(ctx context.Context) {
		refused := build.Claim(team, "never-stored").Pool("history").With(func(s *v1alpha1.IPClaimSpec) { s.CIDR = "10.241.0.9/32" }).Obj()
		Expect(k8s.Create(ctx, refused, client.DryRunAll)).To(Succeed(), "a dry run leaves nothing behind")
		Expect(historyOf("10.241.0.9/32")()).To(BeEmpty())
		refuses(ctx, team)
		refused.Labels = map[string]string{"refuse": "me"}
		Expect(k8s.Create(ctx, refused)).NotTo(Succeed())
		Eventually(historyOf("10.241.0.9/32")).WithTimeout(time.Minute).Should(HaveExactElements(
			"Granted  history/never-stored by admin: Allocated",
			"Released  history/never-stored by admin: Orphaned",
		))
	})
})

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

// impersonating returns a client that the administrator uses in the name of a user, with all
// rights.
func impersonating(user string) client.Client {
	cfg := running.Config()
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	return running.Client(cfg)
}

// This topic has 10.126.0.0/16.
var _ = Describe("requested-by", Ordered, ContinueOnFailure, func() {
	const team = "requested-by"
	requester := func(ctx context.Context, claim *v1alpha1.IPClaim) string {
		GinkgoHelper()
		return specs.Stored(ctx, k8s, specs.RecordOf(claim)).Spec.RequestedBy
	}

	BeforeAll(func(ctx context.Context) {
		specs.Namespace(ctx, k8s, team)
		specs.Pool(ctx, k8s, build.Pool("requested-by").CIDR("10.126.0.0/24").Obj())
	})

	It("serves a user with a name of more than 1,024 characters, and records the first 1,024", func(ctx context.Context) {
		for _, letter := range []string{"x", "ü"} {
			claim := build.Claim(team, unused()).Pool("requested-by").Length(32).Obj()
			Expect(impersonating(strings.Repeat(letter, 1500)).Create(ctx, claim)).To(Succeed())
			Expect(requester(ctx, claim)).To(Equal(strings.Repeat(letter, 1024)))
		}
	})

	It("is recorded for a claim that waited, and cannot be forged until then", func(ctx context.Context) {
		claim := build.Claim(team, "waits").Class("requested-by").Obj()
		claim.Annotations = map[string]string{v1alpha1.AnnotationRequestedBy: "another user"}
		Expect(impersonating("judy").Create(ctx, claim)).To(Succeed())
		Expect(claim.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationRequestedBy, "judy"))
		forged := build.Merge(`{"metadata":{"annotations":{"ipam.cadastre.dev/requested-by":"another user"}}}`)
		Expect(k8s.Patch(ctx, claim.DeepCopy(), forged)).To(MatchError(ContainSubstring("ipam.cadastre.dev/requested-by is written by the operator alone")))

		specs.Created(ctx, k8s, build.Class("requested-by").Length(32).Obj())
		specs.Pool(ctx, k8s, build.Pool("requested-by-late").CIDR("10.126.1.0/24").Classes("requested-by").Obj())
		expectBound(ctx, specs.Stored(ctx, k8s, claim), "10.126.1.0/32")
		Expect(requester(ctx, claim)).To(Equal("judy"))
	})

	It("is not left in a claim that is bound at once", func(ctx context.Context) {
		claim := build.Claim(team, "at-once").Pool("requested-by").Length(32).Obj()
		claim.Annotations = map[string]string{v1alpha1.AnnotationRequestedBy: "another user"}
		specs.Created(ctx, k8s, claim)
		Expect(claim.Annotations).NotTo(HaveKey(v1alpha1.AnnotationRequestedBy))
		Expect(requester(ctx, claim)).To(Equal("admin"))
	})
})
