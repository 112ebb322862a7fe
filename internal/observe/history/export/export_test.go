package export

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	collogs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	logsjson "k8s.io/component-base/logs/json"

	"github.com/cadastre-dev/cadastre/internal/observe/history"
)

var sameBlock = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })

func entries() []history.Entry {
	at := time.Date(2026, 11, 26, 10, 0, 0, 5, time.UTC)
	return []history.Entry{
		{Time: at, Action: history.Granted, Reason: history.Allocated, Block: netip.MustParsePrefix("2001:db8::/64"), PoolKind: "IPPool", Pool: "v6", HolderKind: "IPClaim", HolderNamespace: "team", Holder: "shop", RequestedBy: "alice", Replica: "cadastre-0"},
		{Time: at, Action: history.Retained, Reason: history.HolderDeleted, Block: netip.MustParsePrefix("10.0.0.7/32"), State: "Retained", Until: at.Add(time.Hour)},
		{Time: at, Action: history.Released, Reason: history.RetentionExpired, Block: netip.MustParsePrefix("10.0.0.7/32")},
		{Time: at, Action: history.Refused, Reason: "Conflict", Message: "<taken> \"by\"\nanother", Code: 409, LeftOut: 3, Operation: "CREATE"},
	}
}

func writeEntries(t *testing.T, to history.Sink, batches ...[]history.Entry) {
	t.Helper()
	for _, batch := range batches {
		if err := to.Write(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	if err := to.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, text []byte) []history.Entry {
	t.Helper()
	var got []history.Entry
	unreadable, err := history.Read(bytes.NewReader(text), func(e history.Entry) error {
		got = append(got, e)
		return nil
	})
	if err != nil || unreadable > 0 {
		t.Fatalf("%d lines are unreadable (%v):\n%s", unreadable, err, text)
	}
	return got
}

func TestFileIsAppendedOnRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.jsonl")
	for range 2 { // a process, and the next one
		to, err := File(FileOptions{Path: path, MaxSize: 1})
		if err != nil {
			t.Fatal(err)
		}
		writeEntries(t, to, entries()[:1], entries()[1:])
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(append(entries(), entries()...), read(t, text), sameBlock); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v (%v), want that only the operator reads it", info.Mode(), err)
	}
}

// TestRotationCutsNoEntry rotates by size, and keeps a number of files.
func TestRotationCutsNoEntry(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.jsonl")
	to, err := File(FileOptions{Path: path, MaxSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	long := entries()[:1]
	long[0].Message = strings.Repeat("x", 1000)
	const writes = 2500 // 1.2 KB each, 3 MB in all
	for range writes {
		if err := to.Write(t.Context(), long); err != nil {
			t.Fatal(err)
		}
	}
	if err := to.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	if err != nil || len(files) < 3 {
		t.Fatalf("files %v (%v), want the file and two older ones at least", files, err)
	}
	count := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		count += len(read(t, text))
	}
	if count != writes {
		t.Errorf("%d entries in all files, want %d", count, writes)
	}
}

func TestUnwritableFileFailsAtStart(t *testing.T) {
	if _, err := File(FileOptions{Path: filepath.Join(t.TempDir(), "missing", "history.jsonl")}); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("error %v, want one that names the path", err)
	}
}

// TestLogHasSameFieldsAsFile lets one reader read both.
func TestLogHasSameFieldsAsFile(t *testing.T) {
	var text bytes.Buffer
	logger, control := logsjson.NewJSONLogger(0, logsjson.AddNopSync(&text), nil, nil)
	writeEntries(t, Log(logger.WithName("history")), entries())
	control.Flush()
	if diff := cmp.Diff(entries(), read(t, text.Bytes()), sameBlock); diff != "" {
		t.Errorf("entries (-want +got):\n%s\n%s", diff, text.String())
	}
}

// collector implements an OTLP endpoint.
type collector struct {
	collogs.UnimplementedLogsServiceServer
	took   chan *collogs.ExportLogsServiceRequest
	answer func(context.Context) error
}

func (c *collector) Export(ctx context.Context, r *collogs.ExportLogsServiceRequest) (*collogs.ExportLogsServiceResponse, error) {
	if err := c.answer(ctx); err != nil {
		return nil, err
	}
	c.took <- r
	return &collogs.ExportLogsServiceResponse{}, nil
}

func collect(t *testing.T, answer func(context.Context) error) (*collector, history.Sink) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, server := &collector{took: make(chan *collogs.ExportLogsServiceRequest, 8), answer: answer}, grpc.NewServer()
	collogs.RegisterLogsServiceServer(server, c)
	go server.Serve(listener) //nolint:errcheck // it ends with Stop
	t.Cleanup(server.Stop)
	to, err := OTLP(t.Context(), "http://"+listener.Addr().String(), "cadastre-0")
	if err != nil {
		t.Fatal(err)
	}
	return c, to
}

func TestCollectorReceivesLogRecords(t *testing.T) {
	c, to := collect(t, func(context.Context) error { return nil })
	writeEntries(t, to, entries())
	all := (<-c.took).ResourceLogs
	resource := attributes(all[0].Resource.Attributes)
	if resource["service.name"] != "cadastre" || resource["service.instance.id"] != "cadastre-0" {
		t.Errorf("resource %v, want service and replica", resource)
	}
	records := all[0].ScopeLogs[0].LogRecords
	if len(records) != len(entries()) {
		t.Fatalf("%d records, want %d", len(records), len(entries()))
	}
	refused := records[3]
	if got := time.Unix(0, int64(refused.TimeUnixNano)); !got.Equal(entries()[3].Time) {
		t.Errorf("time %s, want %s", got, entries()[3].Time)
	}
	if refused.EventName != "cadastre.refused" || refused.Body.GetStringValue() != "Refused a request" {
		t.Errorf("event %q, body %q", refused.EventName, refused.Body)
	}
	want := map[string]any{"action": "Refused", "reason": "Conflict", "message": entries()[3].Message, "code": int64(409), "leftOut": int64(3), "operation": "CREATE"}
	if diff := cmp.Diff(want, attributes(refused.Attributes)); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
}

func attributes(of []*commonv1.KeyValue) map[string]any {
	values := map[string]any{}
	for _, a := range of {
		switch v := a.Value.Value.(type) {
		case *commonv1.AnyValue_StringValue:
			values[a.Key] = v.StringValue
		case *commonv1.AnyValue_IntValue:
			values[a.Key] = v.IntValue
		}
	}
	return values
}

// TestRefusalOfCollectorIsError expects an error, by which the refused entries are counted as
// lost.
func TestRefusalOfCollectorIsError(t *testing.T) {
	_, to := collect(t, func(context.Context) error { return status.Error(codes.PermissionDenied, "no") })
	if err := to.Write(t.Context(), entries()); err == nil {
		t.Error("no error from a collector that refuses")
	}
	_, to = collect(t, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := to.Write(ctx, entries()); err == nil {
		t.Error("no error from a collector that hangs until the context is done")
	}
}

func TestEndpointIsURL(t *testing.T) {
	for _, endpoint := range []string{"collector:4317", "ftp://collector", "http://", ":"} {
		if _, err := OTLP(t.Context(), endpoint, ""); err == nil || !strings.Contains(err.Error(), "http://collector:4317") {
			t.Errorf("%q: error %v, want one that shows what to write", endpoint, err)
		}
	}
}
