package explain

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/edit"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/terminal"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

// Report holds the output of `explain`.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	// Object is IPClaim or IPAddressClaim.
	Object    string `json:"object"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Asks describes the requested block in words; once the claim has its block, only the
	// requested source.
	Asks    string      `json:"asks"`
	Created metav1.Time `json:"created"`
	Phase   string      `json:"phase,omitempty"`
	Reason  string      `json:"reason"`
	Message string      `json:"message"`

	// Network is the network of a Cluster that has the block, or asks for it.
	Network *command.ClusterNetwork `json:"network,omitempty"`

	// Block and From are set for a claim that holds a block.
	Block string `json:"block,omitempty"`
	// From lists the pools that contain the block: its own pool first, the root last.
	From        []string `json:"from,omitempty"`
	Record      string   `json:"record,omitempty"`
	RequestedBy string   `json:"requestedBy,omitempty"`
	Afterwards  string   `json:"afterwards,omitempty"`

	// Candidates, Order and Remedies are set for a claim that waits.
	Candidates []Candidate `json:"candidates,omitempty"`
	// Order lists the claims that wait for the same pools, oldest first.
	Order []Waiter `json:"order,omitempty"`
	// OrderIsPartial reports whether claims of other namespaces may be among them.
	OrderIsPartial bool     `json:"orderIsPartial,omitempty"`
	Remedies       []string `json:"remedies,omitempty"`
	// PoolsUnread reports whether the caller cannot read enough to judge the pools.
	PoolsUnread bool `json:"poolsUnread,omitempty"`

	now time.Time
}

// Explanation returns the report that explains a claim.
func Explanation(ctx context.Context, question *Question, knowledge *Knowledge) *Report {
	report := &question.report
	if report.Phase == string(v1alpha1.ClaimBound) {
		report.Asks, report.Afterwards = target(question.request), edit.Afterwards(question.reclaim, ipam.Keeping{})
		if question.pool != nil {
			report.From = lineage(knowledge.Register, convert.PoolKey(report.Namespace, *question.pool))
		}
		named := ipam.Name{Namespace: report.Namespace, Name: report.Record}
		for _, record := range knowledge.Register.Records() {
			if record.Name == named || report.Record == "" && record.Holder == question.holder() {
				report.Record, report.RequestedBy = record.Name.Name, record.RequestedBy
			}
		}
		return report
	}
	pools, terms, complete := candidates(ctx, question, knowledge)
	report.Asks = asks(question.request, terms)
	report.Candidates, report.PoolsUnread = pools, !complete && len(pools) == 0 && question.invalid == nil
	if report.Reason == v1alpha1.ReasonPoolExhausted {
		report.Order = order(question, knowledge)
		report.OrderIsPartial = knowledge.Register.Lacks("ipclaims")
	}
	if complete {
		report.Remedies = remedies(question, knowledge, terms, pools)
	}
	return report
}

// asks describes the block that a request asks for.
func asks(request ipam.Request, terms ipam.Terms) string {
	what := "a block"
	switch {
	case request.Block.IsValid():
		what = request.Block.String()
	case request.Single:
		what = "an address"
	case terms.Length != ipam.NoLength:
		what = fmt.Sprintf("a /%d", terms.Length)
	}
	return what + " of " + target(request)
}

// target describes the source from which a request asks for a block.
func target(request ipam.Request) string {
	switch {
	case request.Pool != (ipam.PoolKey{}):
		return request.Pool.String()
	case request.Class != "":
		return "class " + request.Class
	case request.Selector != "":
		return "the pools with " + request.Selector
	default:
		return "the default class"
	}
}

// lineage returns a pool and the pools above it, up to the routing domain.
func lineage(r *register.Register, key ipam.PoolKey) []string {
	pool := r.Pool(key)
	if pool == nil || !pool.IsKnown() {
		return []string{key.String()}
	}
	var all []string
	for ; pool != nil; pool = pool.Parent {
		all = append(all, fmt.Sprintf("%s (%s)", pool.Key, pool.Extent()))
		if pool.Parent == nil && pool.Domain != nil {
			all = append(all, pool.Domain.Key.String())
		}
	}
	return all
}

// Names implements command.Report.
func (r *Report) Names() []string { return []string{strings.ToLower(r.Object) + "/" + r.Name} }

// Table returns the table of candidates.
func (r *Report) Table(bool) *command.Table {
	t := &command.Table{Headers: []string{"POOL", "CIDR", "LARGEST FREE", "AVAILABLE", "WHY NOT"}}
	for _, c := range r.Candidates {
		t.Add(command.Texts(c.Name, c.CIDR, c.LargestFreePrefix, c.Available, string(c.Reason)+": "+c.Message)...)
	}
	return t
}

// Draw returns the report for people.
func (r *Report) Draw(painted bool) string {
	var out strings.Builder
	created := sinceText(r.Created.Time, r.now)
	if r.Block != "" {
		r.writeBound(&out, created)
		return out.String()
	}
	fmt.Fprintf(&out, "%s %s/%s asks for %s, and waits since %s\n", r.Object, r.Namespace, r.Name, r.Asks, created)
	r.writeNetwork(&out)
	r.writeWaiting(&out, painted)
	return out.String()
}

// writeWaiting writes why a claim waits, and what would help.
func (r *Report) writeWaiting(out io.Writer, painted bool) {
	fmt.Fprintf(out, "%s: %s\n", r.Reason, terminal.PrintableLines(r.Message))
	if len(r.Candidates) > 0 {
		fmt.Fprintln(out, "\nPools that could serve it:")
		_ = r.Table(false).Write(out, painted, true) // to memory
	}
	if len(r.Order) > 0 {
		r.writeOrder(out)
	}
	if len(r.Remedies) > 0 {
		fmt.Fprintf(out, "\nAny of these would help:\n  - %s\n", strings.Join(r.Remedies, "\n  - "))
	}
}

// sinceText returns a time with the time that has passed since.
func sinceText(since, now time.Time) string {
	return fmt.Sprintf("%s (%s)", since.UTC().Format(time.RFC3339), duration.HumanDuration(now.Sub(since)))
}

func (r *Report) writeNetwork(out io.Writer) {
	if r.Network != nil {
		fmt.Fprintf(out, "it is for the %s\n", terminal.Printable(r.Network.String()))
	}
}

func (r *Report) writeBound(out io.Writer, created string) {
	fmt.Fprintf(out, "%s %s/%s holds %s, since %s\n", r.Object, r.Namespace, r.Name, r.Block, created)
	r.writeNetwork(out)
	fmt.Fprintf(out, "it asked for a block of %s\n", r.Asks)
	for i, from := range r.From {
		word := "it lies in"
		if i > 0 {
			word = "  which lies in"
		}
		fmt.Fprintf(out, "%s %s\n", word, from)
	}
	if r.Record != "" {
		requester := ""
		if r.RequestedBy != "" {
			requester = ", requested by " + terminal.Printable(r.RequestedBy)
		}
		fmt.Fprintf(out, "it is recorded as ipallocation/%s%s\n", r.Record, requester)
	}
	fmt.Fprintln(out, r.Afterwards)
	if r.Reason == v1alpha1.ReasonConflict {
		fmt.Fprintf(out, "Conflict: %s\n", terminal.PrintableLines(r.Message))
	}
}

// writeOrder writes the claims that come before this one.
func (r *Report) writeOrder(out io.Writer) {
	scope, suffix := "that wait for the same pools", ""
	if r.OrderIsPartial {
		scope, suffix = scope+", of those that you may see", " that you may see"
	}
	if len(r.Order) == 1 {
		fmt.Fprintf(out, "\nOrder: no other claim%s waits for the same pools.\n", suffix)
		return
	}
	before := ahead(r.Order)
	fmt.Fprintf(out, "\nOrder: number %d of %d claims %s. The oldest that fits is served first.\n", len(before)+1, len(r.Order), scope)
	for _, w := range before[:min(len(before), aheadShown)] {
		fmt.Fprintf(out, "  before it: %s %s/%s, since %s\n", w.Kind, w.Namespace, w.Name, sinceText(w.Since, r.now))
	}
	if more := len(before) - aheadShown; more > 0 {
		fmt.Fprintf(out, "  before it: %d more\n", more)
	}
}

// aheadShown bounds the number of preceding claims that are named.
const aheadShown = 5

// Waiter represents a claim, or a child pool, that waits for room in the same pools.
type Waiter struct {
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	Since     time.Time `json:"since"`
	// Asked marks the explained claim.
	Asked bool `json:"asked,omitempty"`
}

// order returns the claims and child pools that wait for room in the same pools, oldest first, as
// far as the caller can see them, and the explained claim among them. A claim that waits for
// anything else has no position there: others are served before it.
func order(question *Question, knowledge *Knowledge) []Waiter {
	self := question.holder()
	waiters := []Waiter{{Kind: self.Kind, Namespace: self.Namespace, Name: self.Name, Since: question.Obj.GetCreationTimestamp().Time, Asked: true}}
	waitsToo := knowledge.waitsForSame(question.request)
	for _, w := range slices.Concat(knowledge.otherWaiters(), knowledge.addressWaiters()) {
		if w.Holder != self && waitsToo(w.Request) {
			waiters = append(waiters, Waiter{Kind: w.Holder.Kind, Namespace: w.Holder.Namespace, Name: w.Holder.Name, Since: w.Since})
		}
	}
	slices.SortFunc(waiters, func(a, b Waiter) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return waiters
}

// otherWaiters returns the IPClaims that wait for room, and the child pools that wait for their
// parents.
func (k *Knowledge) otherWaiters() []queue.Waiter {
	var all []queue.Waiter
	for i := range k.Register.Waiting {
		claim := &k.Register.Waiting[i]
		if request, errs := convert.Claim(claim); len(errs) == 0 && claim.Status.Phase == v1alpha1.ClaimExhausted {
			all = append(all, queue.Waiter{Since: claim.CreationTimestamp.Time, Holder: convert.HolderOfClaim(request.Claim), Request: request})
		}
	}
	for _, pool := range k.Register.Pools {
		if pool.IsKnown() && pool.IsChild() && !pool.CIDR.IsValid() && !pool.Terminating {
			all = append(all, queue.WaiterOfPool(pool.Pool, pool.Object.GetCreationTimestamp().Time))
		}
	}
	return all
}

// waitsForSame returns a function that reports whether a pool that can serve the first request can
// also serve another request. If the pools are not known, it reports whether both name the same.
func (k *Knowledge) waitsForSame(first ipam.Request) func(ipam.Request) bool {
	shares := func(ipam.Request) bool { return false }
	if k.operator != nil {
		pools, shared := k.operator.Catalog.Wants(first).Pools, k.operator.Catalog.NewWantsCache()
		shares = func(other ipam.Request) bool {
			return slices.ContainsFunc(shared.Wants(other).Pools, func(p ipam.PoolKey) bool { return slices.Contains(pools, p) })
		}
	}
	return func(other ipam.Request) bool {
		switch {
		case shares(other):
			return true
		case first.Pool != (ipam.PoolKey{}):
			return other.Pool == first.Pool
		case first.Class != "":
			return other.Class == first.Class
		default:
			return first.Selector != "" && other.Selector == first.Selector
		}
	}
}

// ahead returns the waiters that come before the explained claim.
func ahead(order []Waiter) []Waiter {
	at := slices.IndexFunc(order, func(w Waiter) bool { return w.Asked })
	return order[:max(at, 0)]
}
