package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// sink takes entries, fails, or hangs for a time.
type sink struct {
	mu     sync.Mutex
	took   []Entry
	fails  error
	waits  chan struct{} // nil: it does not hang
	closed bool
}

func (s *sink) Write(ctx context.Context, entries []Entry) error {
	if s.waits != nil {
		select {
		case <-s.waits:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails == nil {
		s.took = append(s.took, entries...)
	}
	return s.fails
}

func (s *sink) Close(context.Context) error {
	s.closed = true
	return nil
}

func (s *sink) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = err
}

// world holds a recorder with its losses and log entries.
type world struct {
	*Recorder
	lost map[string]int
	log  []string
}

func record(t *testing.T, sinks map[string]Sink) *world {
	t.Helper()
	w := &world{lost: map[string]int{}}
	var mu sync.Mutex
	w.Recorder = New(Options{
		Sinks: sinks, Replica: "cadastre-0", Clock: clock.RealClock{},
		Lost: func(sink string, n int) {
			mu.Lock()
			defer mu.Unlock()
			w.lost[sink] += n
		},
		Log: funcr.New(func(_, line string) {
			mu.Lock()
			defer mu.Unlock()
			w.log = append(w.log, line)
		}, funcr.Options{}),
	})
	return w
}

func heldRecord(n byte) ipam.Record {
	return ipam.Record{
		Name: ipam.Name{Namespace: "team", Name: "shop-1"}, UID: "uid-1",
		Block: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, n}), 32), Pool: ipam.PoolNamed("corporate"), Class: "hosts", Project: "shop",
		Holder:      ipam.Holder{Group: "ipam.cadastre.dev", Kind: "IPClaim", Namespace: "team", Name: "shop"},
		RequestedBy: "alice", State: ipam.StateRetained, ReleaseAfter: time.Unix(7200, 0).UTC(),
	}
}

func TestEntryHasAllFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &sink{}
		w := record(t, map[string]Sink{"file": to})
		w.Granted(heldRecord(7), Allocated)
		w.Retained(heldRecord(7), HolderDeleted)
		w.Refused(Refusal{
			Kind: "IPClaim", Namespace: "team", Name: "other", Operation: "CREATE", Block: netip.MustParsePrefix("10.0.0.7/32"),
			User: "bob", Code: 409, Reason: "Conflict", Message: strings.Repeat("ä", 1000),
		})
		runFor(t, w.Recorder, func() {})
		now := time.Now().UTC()
		base := Entry{
			Time: now, Block: netip.MustParsePrefix("10.0.0.7/32"), PoolKind: "IPPool", Pool: "corporate", Class: "hosts", Project: "shop",
			HolderKind: "IPClaim", HolderNamespace: "team", Holder: "shop", RequestedBy: "alice",
			Record: "team/shop-1", RecordUID: "uid-1", Replica: "cadastre-0",
		}
		granted, retained := base, base
		granted.Action, granted.Reason = Granted, Allocated
		retained.Action, retained.Reason, retained.State, retained.Until = Retained, HolderDeleted, "Retained", time.Unix(7200, 0).UTC()
		refused := Entry{
			Time: now, Action: Refused, Reason: "Conflict", Block: base.Block, Code: 409, Operation: "CREATE",
			HolderKind: "IPClaim", HolderNamespace: "team", Holder: "other", RequestedBy: "bob", Replica: "cadastre-0",
		}
		if len(to.took) != 3 || len(to.took[2].Message) > messageLength || !strings.HasSuffix(to.took[2].Message, "ä…") {
			t.Fatalf("entries %v, want three, the last with a message that is cut", to.took)
		}
		to.took[2].Message = ""
		if diff := cmp.Diff([]Entry{granted, retained, refused}, to.took, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
			t.Errorf("entries (-want +got):\n%s", diff)
		}
		if !to.closed {
			t.Error("the sink is not closed at the end")
		}
	})
}

// runFor runs a recorder while do runs.
func runFor(t *testing.T, r *Recorder, do func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	do()
	synctest.Wait()
	cancel()
	running.Wait()
}

// TestHangingSinkBlocksNoCaller expects that neither the callers nor the other sinks are held up,
// and that the entries that the sink does not take are counted.
func TestHangingSinkBlocksNoCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hanging, other := &sink{waits: make(chan struct{})}, &sink{}
		w := record(t, map[string]Sink{"otlp": hanging, "file": other})
		const rounds = 4
		runFor(t, w.Recorder, func() {
			for range rounds {
				for range waiting {
					w.Released(heldRecord(1), HolderDeleted)
				}
				synctest.Wait()
			}
		})
		if len(other.took) != rounds*waiting || w.lost["file"] != 0 {
			t.Errorf("the other sink took %d entries and lost %d, want all %d", len(other.took), w.lost["file"], rounds*waiting)
		}
		if len(hanging.took) != 0 || w.lost["otlp"] != rounds*waiting {
			t.Errorf("the hanging sink took %d and lost %d, want all %d counted as lost", len(hanging.took), w.lost["otlp"], rounds*waiting)
		}
	})
}

func TestSinkFailureAndRecoveryAreLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &sink{fails: errors.New("disk full")}
		w := record(t, map[string]Sink{"file": to})
		runFor(t, w.Recorder, func() {
			for range 3 {
				w.Granted(heldRecord(1), Allocated)
				synctest.Wait()
			}
			to.fail(nil)
			for range 2 {
				w.Granted(heldRecord(2), Allocated)
				synctest.Wait()
			}
		})
		if len(w.log) != 2 || !strings.Contains(w.log[0], "disk full") || !strings.Contains(w.log[1], `"lost"=3`) {
			t.Errorf("log %q, want the failure once, and how many were lost when it was over", w.log)
		}
		if w.lost["file"] != 3 || len(to.took) != 2 {
			t.Errorf("%d lost, %d taken, want 3 and 2", w.lost["file"], len(to.took))
		}
	})
}

// TestRefusalsOfTenantAreBounded expects also an entry with the number of refusals
// that were left out.
func TestRefusalsOfTenantAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &sink{}
		w := record(t, map[string]Sink{"file": to})
		refuse := func(namespace string) {
			w.Refused(Refusal{Kind: "IPClaim", Namespace: namespace, Reason: "Forbidden", Code: 403})
		}
		runFor(t, w.Recorder, func() {
			for range 1000 {
				refuse("loud")
			}
			refuse("quiet")
			time.Sleep(6 * time.Second)
			refuse("loud")
		})
		var loud []Entry
		for _, e := range to.took {
			if e.HolderNamespace == "loud" {
				loud = append(loud, e)
			}
		}
		if len(to.took) != refusalsBurst+2 || len(loud) != refusalsBurst+1 {
			t.Fatalf("%d entries, of which %d are of the namespace that is refused, want %d and %d", len(to.took), len(loud), refusalsBurst+2, refusalsBurst+1)
		}
		if got := loud[refusalsBurst].LeftOut; got != 1000-refusalsBurst {
			t.Errorf("%d are reported as left out, want %d", got, 1000-refusalsBurst)
		}
	})
}

func TestNilRecorderRecordsNothing(t *testing.T) {
	var none *Recorder
	none.Granted(heldRecord(1), Allocated)
	none.Retained(heldRecord(1), HolderDeleted)
	none.Released(heldRecord(1), HolderDeleted)
	none.Refused(Refusal{})
	none.Run(t.Context())
}

// TestFieldsMatchJSON expects the same order and the same values.
func TestFieldsMatchJSON(t *testing.T) {
	e := &Entry{}
	value := reflect.ValueOf(e).Elem()
	var tags []string
	for i := range value.NumField() {
		name, _, _ := strings.Cut(value.Type().Field(i).Tag.Get("json"), ",")
		tags = append(tags, name)
		switch f := value.Field(i); f.Kind() {
		case reflect.String:
			f.SetString("v-" + name)
		case reflect.Int, reflect.Int32:
			f.SetInt(int64(i))
		}
	}
	e.Time, e.Until, e.Block = time.Unix(1, 5).UTC(), time.Unix(2, 0).UTC(), netip.MustParsePrefix("10.0.0.0/24")
	e.AdditionalBlocks = BlockList{netip.MustParsePrefix("10.0.1.0/30"), netip.MustParsePrefix("10.0.1.4/31")}
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	got, names := map[string]any{}, []string{}
	for _, f := range Fields() {
		names = append(names, f.Name)
		got[f.Name] = f.Value(e)
		if n, ok := got[f.Name].(int64); ok {
			got[f.Name] = float64(n)
		}
	}
	if diff := cmp.Diff(tags, names); diff != "" {
		t.Errorf("fields (-struct +list):\n%s", diff)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values (-JSON +list):\n%s", diff)
	}
	for _, f := range Fields() {
		if f.Name != "time" && f.Name != "action" && f.Name != "reason" && f.Value(&Entry{}) != nil {
			t.Errorf("%s of an empty entry is %v, want none", f.Name, f.Value(&Entry{}))
		}
	}
}

// TestEntryNamesAllBlocksOfRecord reads the entries again, as a line of the file and of the log.
func TestEntryNamesAllBlocksOfRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &sink{}
		w := record(t, map[string]Sink{"file": to})
		held := heldRecord(10)
		held.AdditionalBlocks = []netip.Prefix{netip.MustParsePrefix("10.0.0.12/30"), netip.MustParsePrefix("10.0.0.16/30")}
		w.Granted(held, Allocated)
		w.Released(held, HolderDeleted)
		runFor(t, w.Recorder, func() {})
		var lines []string
		for i := range to.took {
			line, err := json.Marshal(to.took[i])
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, string(line))
		}
		var got []string
		if _, err := Read(strings.NewReader(strings.Join(lines, "\n")), func(e Entry) error {
			got = append(got, fmt.Sprint(e.Action, e.Blocks()))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		want := []string{"Granted[10.0.0.10/32 10.0.0.12/30 10.0.0.16/30]", "Released[10.0.0.10/32 10.0.0.12/30 10.0.0.16/30]"}
		if !slices.Equal(got, want) {
			t.Errorf("entries %q, want %q", got, want)
		}
		if other := (&Entry{}).Blocks(); other != nil {
			t.Errorf("an entry without block has %v", other)
		}
	})
}

func TestReadSkipsOtherLines(t *testing.T) {
	lines := []string{
		`{"time":"2026-11-26T10:00:00Z","action":"Granted","reason":"Allocated","block":"10.0.0.7/32"}`,
		`{"ts":1764151200000.1,"logger":"allocator","v":1,"msg":"Resolved a request","claim":"IPClaim a/b"}`,
		`{"ts":1764151200000.2,"msg":"Granted a block","time":"2026-11-26T10:00:01Z","action":"Granted","reason":"Adopted","block":"10.0.0.8/32","code":0}`,
		`I1126 10:00:00.000000       1 main.go:1] "Started"`,
		``,
		`[1]`,
		`{"time":"2026-11-26T10:00:02Z","action":"Released","reason":"HolderDele`,
	}
	var got []string
	unreadable, err := Read(strings.NewReader(strings.Join(lines, "\n")), func(e Entry) error {
		got = append(got, e.Block.String()+" "+string(e.Reason))
		return nil
	})
	if want := []string{"10.0.0.7/32 Allocated", "10.0.0.8/32 Adopted"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("entries %v (error %v), want %v", got, err, want)
	}
	if unreadable != 2 {
		t.Errorf("%d lines are unreadable, want 2: the one of text and the one that is cut off", unreadable)
	}
	full := errors.New("enough")
	if _, err := Read(strings.NewReader(lines[0]), func(Entry) error { return full }); !errors.Is(err, full) {
		t.Errorf("error %v, want that of the caller", err)
	}
}
