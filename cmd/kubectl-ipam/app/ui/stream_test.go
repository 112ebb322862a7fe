package ui

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/live"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

var update = flag.Bool("update", false, "write the sent messages into testdata")

// site holds a server that serves a cluster.
type site struct {
	*testing.T
	origin string
	end    context.CancelFunc
	ended  chan error
}

// serve serves a register until the test ends.
func serve(t *testing.T, l *live.Live, change ...func(*Options)) *site {
	t.Helper()
	options := Options{
		Live: l, Commands: commands{}, Hello: live.Hello{Version: "v0.1.0", Context: "kind-x", Namespace: "team", ReadOnly: true},
		Token: token, Clock: clock.RealClock{}, Now: func() time.Time { return time.Unix(1_800_000_000, 0) },
	}
	for _, edit := range change {
		edit(&options)
	}
	listener, hosts, err := Listen(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	s := &site{T: t, origin: "http://" + hosts[0], end: end, ended: make(chan error, 1)}
	go func() { s.ended <- Serve(ctx, listener, hosts, options) }()
	t.Cleanup(func() { _ = s.stopped() }) // a test that expects an error checks it
	return s
}

// stopped ends the server, and returns how it has ended.
func (s *site) stopped() error {
	s.end()
	err := <-s.ended
	s.ended <- err
	return err
}

// answered holds an answer, of which the body is closed when the test ends.
type answered struct {
	io.Reader
	code int
	kind string
}

// request sends a request with the token.
func (s *site) request(method, path string, body io.Reader, headers ...string) *answered {
	s.Helper()
	req, err := http.NewRequestWithContext(s.Context(), method, s.origin+path, body)
	if err != nil {
		s.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { resp.Body.Close() })
	return &answered{resp.Body, resp.StatusCode, resp.Header.Get("Content-Type")}
}

// reading reads a stream.
type reading struct {
	*testing.T
	lines *bufio.Reader
	text  strings.Builder
}

func (s *site) reads() *reading {
	s.Helper()
	resp := s.request(http.MethodGet, "/api/stream", nil)
	if resp.code != http.StatusOK || resp.kind != "application/x-ndjson" {
		s.Fatalf("%d, %s", resp.code, resp.kind)
	}
	return &reading{T: s.T, lines: bufio.NewReader(resp)}
}

// until reads messages up to the first of a type, and writes down all except beats.
func (r *reading) until(kind string) {
	r.Helper()
	for {
		line := r.next()
		if kindOf(line) != "beat" || kind == "beat" {
			r.text.WriteString(line)
		}
		if kindOf(line) == kind {
			return
		}
	}
}

// then does something, reads messages until there was one of each type, and writes them down in
// this order: the use of a pool can come with the blocks or later. Those that can come at any time
// are not written down.
func (r *reading) then(what string, do func(), kinds ...string) {
	r.Helper()
	do()
	r.text.WriteString("--- " + what + "\n")
	lines := map[string]string{}
	for len(lines) < len(kinds) {
		switch line := r.next(); {
		case kindOf(line) == "beat":
		case slices.Contains(kinds, kindOf(line)):
			lines[kindOf(line)] = line
		case slices.Contains(kinds, kindOf(line)+", whenever"):
			lines[kindOf(line)+", whenever"] = ""
		default:
			r.Errorf("%s: unexpected: %s", what, line)
		}
	}
	for _, kind := range kinds {
		r.text.WriteString(lines[kind])
	}
}

func (r *reading) next() string {
	r.Helper()
	line, err := r.lines.ReadString('\n')
	if err != nil {
		r.Fatalf("the stream ended with %v after\n%s", err, r.text.String())
	}
	return line
}

// kindOf returns the type of a message.
func kindOf(line string) string { return strings.Split(line, `"`)[3] }

// matches compares what was read with testdata/NAME.golden.
func (r *reading) matches(name string) {
	r.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(r.text.String()), 0o600); err != nil {
			r.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		r.Fatal(err)
	}
	if diff := cmp.Diff(string(want), r.text.String()); diff != "" {
		r.Errorf("%s differs (-want +got):\n%s\nwrite it again with go test ./cmd/kubectl-ipam/app/ui -update", path, diff)
	}
}

// record returns an IPAllocation.
func record(pool ipam.PoolKey, name string, block string, holder ipam.Holder, change ...func(*ipam.Record)) *v1alpha1.IPAllocation {
	r := ipam.Record{
		Name: ipam.Name{Namespace: "team", Name: name}, Pool: pool, Block: netip.MustParsePrefix(block), Holder: holder,
		Purpose: ipam.PurposeClaim, State: ipam.StateBound, Reclaim: ipam.ReclaimDelete, Project: "team", Class: "subnets", RequestedBy: "alice",
	}
	if holder.IsPool() {
		r.Purpose, r.Name.Namespace, r.Class, r.Project = ipam.PurposePool, "cadastre-system", "", ""
	}
	for _, edit := range change {
		edit(&r)
	}
	return convert.Allocation(r)
}

func claimOf(name string) ipam.Holder {
	return convert.HolderOfClaim(ipam.Name{Namespace: "team", Name: name})
}

// filled returns a cluster with objects of every kind.
func filled(t *testing.T) *cluster {
	c := newCluster(t)
	core, west := ipam.PoolNamed("core"), ipam.PoolNamed("west")
	ready := func(pool *v1alpha1.IPPool, cidr string) *v1alpha1.IPPool {
		pool.Status = v1alpha1.PoolStatus{Phase: v1alpha1.PoolReady, AllocatedCIDR: cidr}
		return pool
	}
	limited := build.Pool("core").CIDR("10.0.0.0/8").Label("site", "all").Reserved("10.9.0.0-10.9.0.9").Limit(7).With(func(s *v1alpha1.IPPoolSpec) {
		s.ReuseDelay = &metav1.Duration{Duration: 5 * time.Minute}
	}).Obj()
	retained := func(r *ipam.Record) {
		r.State, r.ReleaseAfter = ipam.StateRetained, time.Unix(1_800_086_400, 0)
	}
	waits := build.Claim("team", "vip").Pool("west").Length(16).Obj()
	waits.Status = v1alpha1.IPClaimStatus{Phase: v1alpha1.ClaimExhausted, Conditions: []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPoolExhausted, Message: "no free /16 in pool west",
	}}}
	waits.Annotations = map[string]string{v1alpha1.AnnotationClusterNetwork: "prod/control-plane-endpoint/0"}
	pods := build.Claim("team", "apps").Obj()
	pods.Annotations, pods.Status.Phase = map[string]string{v1alpha1.AnnotationClusterNetwork: "prod/pods/0"}, v1alpha1.ClaimBound
	c.put(
		ready(limited, "10.0.0.0/8"), ready(build.Pool("west").Child("core", 16).CIDR("10.1.0.0/16").Classes("subnets").Network(16, "10.1.0.1").Obj(), "10.1.0.0/16"),
		build.Pool("own").CIDR("2001:db8::/64").In("team"), build.Class("subnets").Default().Obj(), waits,
		build.AddressClaim("team", "machine-0").Pool("missing").Obj(), pods,
		record(ipam.DomainNamed("default", ipam.IPv4), "ippool.core", "10.0.0.0/8", convert.HolderOfPool(core)),
		record(core, "ippool.west", "10.1.0.0/16", convert.HolderOfPool(west)),
		record(core, "drained", "10.9.0.8/29", claimOf("drained")),
		record(west, "apps", "10.1.1.0/24", claimOf("apps")),
		record(west, "keep", "10.1.2.0/24", claimOf("keep"), retained),
		record(ipam.PoolNamed("gone"), "orphan", "192.0.2.0/28", claimOf("orphan")),
	)
	return c
}

func TestStreamMatchesDocumentation(t *testing.T) {
	c := filled(t)
	l := c.live()
	<-l.AllRead() // for the messages before, see TestStreamSendsPoolsBeforeRecordsAreRead
	r := serve(t, l).reads()
	r.until("ready")
	r.until("beat")
	r.then("a claim gets its block", func() { c.put(record(ipam.PoolNamed("west"), "new", "10.1.3.0/24", claimOf("new"))) }, "blocks", "pools")
	r.then("another one is released", func() { c.remove("ipallocations", "apps") }, "gone", "pools")
	r.then("a claim that waited does not any more", func() { c.remove("ipclaims", "vip") }, "gone")
	r.then("what a pool withholds changes", func() { c.put(build.Pool("core").CIDR("10.0.0.0/8").Obj()) }, "pools", "blocks")
	r.then("a pool is deleted, and blocks of it are left", func() { c.remove("ippools", "west") }, "blocks", "pools, whenever")
	r.matches("stream")
}

// TestStreamSendsPoolsBeforeRecordsAreRead holds the list of records up.
func TestStreamSendsPoolsBeforeRecordsAreRead(t *testing.T) {
	c := filled(t)
	held := make(chan struct{})
	c.held["ipallocations"] = held
	r := serve(t, c.live()).reads()
	r.until("pools")
	if text := r.text.String(); !strings.Contains(text, `"usageFrom":"status"`) && !strings.Contains(text, `"usageFrom":""`) || strings.Contains(text, `"usageFrom":"records"`) {
		t.Errorf("usage is from records that have not been read:\n%s", text)
	}
	close(held)
	r.until("ready")
	var kinds []string
	for line := range strings.Lines(r.text.String()) {
		kinds = append(kinds, kindOf(line))
	}
	if diff := cmp.Diff([]string{"hello", "unread", "pools", "unread", "pools", "blocks", "waiting", "ready"}, kinds); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}

// TestStalledClientIsDisconnected opens a stream, and does not read it while much changes.
func TestStalledClientIsDisconnected(t *testing.T) {
	c := filled(t)
	wordy := func(r *ipam.Record) { r.RequestedBy = strings.Repeat("x", v1alpha1.MaxRequestedBy) }
	for i := range 8000 { // more than fits into the buffers of a connection
		c.put(record(ipam.PoolNamed("core"), fmt.Sprint("long-", i), "10.200.0.0/24", claimOf("web"), wordy))
	}
	s := serve(t, c.live(), func(o *Options) { o.takeWithin = time.Second })
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(s.origin, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.origin+"/api/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if err := req.Write(conn); err != nil {
		t.Fatal(err)
	}
	r := s.reads() // another one is served beside it
	r.until("ready")
	for { // the end of the first shows only when its data cannot be sent any more
		c.put(record(ipam.PoolNamed("west"), "new", "10.1.3.0/24", claimOf("new")))
		r.until("blocks")
		if _, err := conn.Write([]byte("x")); err != nil {
			break
		}
	}
	if rest, err := io.ReadAll(conn); err == nil && strings.Contains(string(rest), `{"type":"ready"}`) {
		t.Error("the client that reads nothing was sent everything")
	} else if err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
}

// TestServerStopEndsStreams ends the server while a stream is read.
func TestServerStopEndsStreams(t *testing.T) {
	s := serve(t, filled(t).live())
	r := s.reads()
	r.until("ready")
	if err := s.stopped(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
	if _, err := io.ReadAll(r.lines); err != nil {
		t.Errorf("the stream ended with %v", err)
	}
}

func TestStreamsAreLimited(t *testing.T) {
	s := serve(t, filled(t).live())
	for range mostStreams {
		s.reads().until("hello")
	}
	if resp := s.request(http.MethodGet, "/api/stream", nil); resp.code != http.StatusServiceUnavailable {
		t.Errorf("one more: %d", resp.code)
	}
}

// commands implements commands that answer with their arguments.
type commands struct{}

var errOfCommand = command.Coded(command.ExitLimit, errors.New("of the command"))

func (commands) Who(_ context.Context, r *register.Register, text string) (any, error) {
	if text == "fails" {
		return nil, errOfCommand
	}
	return map[string]any{"who": text, "pools": len(r.Pools)}, nil
}

func (commands) Explain(_ context.Context, _ *register.Register, claim Claim) (any, error) {
	return claim, nil
}

func (commands) Free(_ context.Context, _ *register.Register, request FreeOf) (any, error) {
	return request, nil
}

func (commands) Machine(_ context.Context, name string) (any, error) { return name, nil }

func (commands) Create(_ context.Context, request ClaimRequest) (any, error) { return request, nil }

func (commands) Release(_ context.Context, namespace, name, uid string) (any, error) {
	return []string{namespace, name, uid}, nil
}
