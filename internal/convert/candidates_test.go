package convert

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
)

func TestClaimListsCandidates(t *testing.T) {
	block, pool := netip.MustParsePrefix("10.0.0.0/28"), ipam.PoolNamed("p")
	holder := HolderOfClaim(ipam.Name{Namespace: "secret", Name: "other"})
	var rows []messages.Row
	for reason, test := range map[v1alpha1.CandidateReason]struct {
		err           error
		message, then string
	}{
		v1alpha1.CandidateFits:        {nil, "", ""},
		v1alpha1.CandidateNoFreeBlock: {&ipam.ExhaustedError{Pools: []ipam.PoolKey{pool}, Bits: 28, Largest: 29}, "no free /28 in pool p: the claim is bound as soon as one is released", ""},
		v1alpha1.CandidateOutOfTurn: {
			&ipam.ExhaustedError{OutOfTurn: true, Pools: []ipam.PoolKey{pool}, Bits: 28},
			"a free /28 of pool p is for a claim that waits already: the claim is bound as soon as it is its turn",
			"no free /28 in pool p: the claim is bound as soon as one is released",
		},
		v1alpha1.CandidateInUse: {
			&ipam.TakenError{Block: block, Pool: pool, Overlap: block, Holder: holder},
			"10.0.0.0/28 is in use in pool p: delete this claim and make a new one, or have the other released", "",
		},
		v1alpha1.CandidateWithheld: {
			&ipam.TakenError{Block: block, Pool: pool},
			"10.0.0.0/28 is not handed out by pool p: it is reserved, a gateway or edge address, or outside its ranges: ask for another block", "",
		},
		v1alpha1.CandidatePaused: {&ipam.MissingError{Message: "pool p is paused: use another", Verdict: ipam.Paused}, "pool p is paused: use another", ""},
	} {
		results := []ipam.PoolResult{{Pool: pool, Err: test.err}}
		want := v1alpha1.CandidatePool{PoolRef: *PoolReference(pool), Reason: reason, Message: test.message}
		now, _ := CandidatesNow(results)
		if diff := cmp.Diff([]v1alpha1.CandidatePool{want}, now); diff != "" {
			t.Errorf("%s, at this moment: %s", reason, diff)
		}
		if test.then != "" { // the stored candidates do not follow the turns of others
			want.Reason, want.Message = v1alpha1.CandidateNoFreeBlock, test.then
		}
		stored, _ := Candidates(results)
		if diff := cmp.Diff([]v1alpha1.CandidatePool{want}, stored); diff != "" {
			t.Errorf("%s, as it is stored: %s", reason, diff)
		}
		if test.message != "" && reason != v1alpha1.CandidatePaused {
			rows = append(rows, messages.Row{Object: "IPClaim", On: "candidate", Answer: "reason, " + string(reason), Value: "pool p", Message: test.message})
		}
	}
	messages.Golden(t, rows)
}

// TestCandidatesAreBounded covers their number, and the message of each.
func TestCandidatesAreBounded(t *testing.T) {
	name := strings.Repeat("ü", 253)
	var results []ipam.PoolResult
	for range 1000 {
		results = append(results, ipam.PoolResult{Pool: ipam.PoolNamed(name), Err: &ipam.MissingError{Message: strings.Repeat(name, 4)}})
	}
	candidates, omitted := Candidates(results)
	if len(candidates) != 10 || omitted != 990 {
		t.Errorf("%d are listed, and %d omitted; want 10 and 990", len(candidates), omitted)
	}
	if got := len([]rune(candidates[0].Message)); got != 512 {
		t.Errorf("a message has %d characters, want 512", got)
	}
	longest := strings.Repeat("ü", 512)
	if all, _ := Candidates([]ipam.PoolResult{{Err: &ipam.MissingError{Message: longest}}}); all[0].Message != longest {
		t.Errorf("a message of 512 characters is changed to %q", all[0].Message)
	}
	text := CandidateReasons(results)
	if !strings.HasSuffix(text, ": NotReady, and 990 more") || len([]rune(text)) > 10*300 {
		t.Errorf("the message of a condition has %d characters: %s", len([]rune(text)), text)
	}
	status := ClaimWaits(ipam.WithPools(&ipam.MissingError{}, results)).Status(v1alpha1.IPClaimStatus{})
	if len(status.Candidates) != 10 || status.CandidatesOmitted != 990 {
		t.Errorf("the status has %d, and %d omitted", len(status.Candidates), status.CandidatesOmitted)
	}
	bound := ClaimBound(ipam.Record{Block: netip.MustParsePrefix("10.0.0.0/28")}, ipam.Pool{}).Status(status)
	if bound.Candidates != nil || bound.CandidatesOmitted != 0 {
		t.Errorf("bound, it has them still: %+v", bound)
	}
}

func TestMessageListsPoolReasons(t *testing.T) {
	full := &ipam.ExhaustedError{Bits: 32}
	a, b := ipam.PoolResult{Pool: ipam.LocalPoolNamed("team", "a"), Err: full}, ipam.PoolResult{Pool: ipam.PoolNamed("b"), Err: &ipam.LimitError{}}
	if got, want := CandidateReasons([]ipam.PoolResult{a, b}), "pool team/a: NoFreeBlock, pool b: LimitReached"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := CandidateReasons([]ipam.PoolResult{a}); got != "" {
		t.Errorf("the message about one pool is too long: got %q", got)
	}
}

func TestSetFreeStatesFreeSpaceOfCandidate(t *testing.T) {
	c := v1alpha1.CandidatePool{}
	SetFree(&c, 20, space.CountOf64(4096))
	if c.LargestFreePrefix != "/20" || c.Available != "4096" {
		t.Errorf("got %+v", c)
	}
	SetFree(&c, ipam.NoLength, space.Count{})
	if c.LargestFreePrefix != "" || c.Available != "0" {
		t.Errorf("full: got %+v", c)
	}
}

// TestVerdictsAreCandidateReasons expects that the API documents each verdict of the core, and
// no other.
func TestVerdictsAreCandidateReasons(t *testing.T) {
	core, api := constants(t, "../ipam/request.go"), constants(t, "../../api/v1alpha1/candidates.go")
	if diff := cmp.Diff(core, api); diff != "" || len(core) < 10 {
		t.Errorf("the verdicts of the core are not the reasons of the API:\n%s", diff)
	}
	documented, err := parser.ParseFile(token.NewFileSet(), "../../api/v1alpha1/ipclaim_types.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, group := range documented.Comments {
		text += group.Text()
	}
	for reason := range api {
		if !strings.Contains(text, strings.Trim(reason, `"`)) {
			t.Errorf("the field reason of a candidate does not document %s", reason)
		}
	}
}

// constants returns the texts that a file states as constants.
func constants(t *testing.T, path string) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	ast.Inspect(file, func(node ast.Node) bool {
		if spec, is := node.(*ast.ValueSpec); is {
			for _, value := range spec.Values {
				if text, is := value.(*ast.BasicLit); is && text.Kind == token.STRING {
					found[text.Value] = true
				}
			}
		}
		return true
	})
	return found
}
