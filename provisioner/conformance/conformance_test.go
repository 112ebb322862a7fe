package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/provisioner"
)

// system represents one that has four ranges, each with the key of its holder.
type system struct {
	mu   sync.Mutex
	keys [4]string
}

func block(i int) netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i)}), 24) }

// memory implements Provisioner with two requests to the system: one takes a range, the other finds that of
// a key. Its defects are mistakes of such implementations.
type memory struct {
	system *system
	cut    func() error
	defect string
	// known are the ranges that this process remembers, which only some defects do.
	known *sync.Map
}

// request makes a request to the system.
func (m *memory) request(do func(*system) error) error {
	if m.defect == "cut is not called" {
		m.cut = func() error { return nil }
	}
	if err := m.cut(); err != nil {
		return err
	}
	m.system.mu.Lock()
	err := do(m.system)
	m.system.mu.Unlock()
	if cutErr := m.cut(); cutErr != nil {
		return cutErr
	}
	return err
}

func (m *memory) Provision(ctx context.Context, r provisioner.Request) (found netip.Prefix, err error) {
	if ctx.Err() != nil {
		return found, ctx.Err()
	}
	switch m.defect {
	case "each call takes a range", "a lookup and a take are apart":
	case "ranges are remembered by the process only":
		if block, ok := m.known.Load(r.Key); ok {
			return block.(netip.Prefix), nil
		}
	default:
		err = m.request(func(s *system) error { found = s.find(r.Key); return nil })
	}
	if err != nil || found.IsValid() {
		return found, err
	}
	if m.defect == "a lookup and a take are apart" {
		if err := m.request(func(s *system) error { found = s.find(r.Key); return nil }); err != nil || found.IsValid() {
			return found, err
		}
	}
	if m.defect == "a take is in two steps, and the first has another key" {
		return m.takeInTwo(r)
	}
	err = m.request(func(s *system) error { found, err = m.take(s, r); return err })
	if m.known != nil && err == nil {
		m.known.Store(r.Key, found)
	}
	return found, err
}

// takeInTwo takes a range for a helper key, unless it has one, and then gives it to the key.
func (m *memory) takeInTwo(r provisioner.Request) (found netip.Prefix, err error) {
	helper := r
	helper.Key = "pending-" + r.Key
	if err := m.request(func(s *system) error { found, err = m.take(s, helper); return err }); err != nil {
		return found, err
	}
	err = m.request(func(s *system) error {
		for i, holder := range s.keys {
			if holder == helper.Key {
				s.keys[i] = r.Key
			}
		}
		found = s.find(r.Key)
		return nil
	})
	return found, err
}

// find returns the range of a key.
func (s *system) find(key string) netip.Prefix {
	for i, holder := range s.keys {
		if holder == key {
			return block(i)
		}
	}
	return netip.Prefix{}
}

// take takes a range for a key, in one step with a look whether it has one.
func (m *memory) take(s *system, r provisioner.Request) (netip.Prefix, error) {
	isBlind := m.defect == "each call takes a range" || m.defect == "ranges are remembered by the process only" || m.defect == "a lookup and a take are apart"
	if found := s.find(r.Key); found.IsValid() && !isBlind {
		return found, nil
	}
	for i, holder := range s.keys {
		isWanted := !r.Range.IsValid() || r.Range == block(i) || m.defect == "the range of the request is ignored"
		isFree := holder == "" || m.defect == "the range of another key is given" && r.Range == block(i)
		if !isWanted || !isFree {
			continue
		}
		switch m.defect {
		case "the range is not stored":
		case "a key is cut short":
			s.keys[i] = r.Key[:len(r.Key)-1]
		default:
			s.keys[i] = r.Key
		}
		switch m.defect {
		case "the range is too small":
			return netip.PrefixFrom(block(i).Addr(), 25), nil
		case "the range has host bits":
			return netip.PrefixFrom(block(i).Addr().Next(), 24), nil
		}
		return block(i), nil
	}
	if m.defect == "without a free range there is no error" {
		return netip.Prefix{}, nil
	}
	return netip.Prefix{}, errors.New("no range is free")
}

func (m *memory) Release(ctx context.Context, key string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return m.request(func(s *system) error {
		released := false
		for i, holder := range s.keys {
			if holder != "" && (holder == key || m.defect == "the release is of all keys") && m.defect != "nothing is released" {
				s.keys[i], released = "", true
			}
		}
		if !released && m.defect == "an unknown key is an error" {
			return errors.New("there is no such key")
		}
		return nil
	})
}

// newTarget returns a target with a new system.
func newTarget(defect string) Target {
	s := &system{}
	return Target{
		New: func(cut func() error) (provisioner.Provisioner, error) {
			m := &memory{system: s, cut: cut, defect: defect}
			if defect == "ranges are remembered by the process only" {
				m.known = &sync.Map{}
			}
			return m, nil
		},
		Request: provisioner.Request{Cluster: "uid", Class: "leased", Family: v1alpha1.IPv4, PrefixLength: 24},
		Ranges:  4,
		Forget: func(_ context.Context, key string) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			for i := range s.keys {
				if s.keys[i] == key {
					s.keys[i] = ""
				}
			}
			return nil
		},
	}
}

func TestCorrectImplementationPasses(t *testing.T) {
	Test(t, newTarget(""))
}

func TestEachDefectIsFound(t *testing.T) {
	for _, defect := range []string{
		"each call takes a range",
		"ranges are remembered by the process only",
		"a lookup and a take are apart",
		"the range of the request is ignored",
		"the range of another key is given",
		"the range is not stored",
		"a key is cut short",
		"the range is too small",
		"the range has host bits",
		"without a free range there is no error",
		"the release is of all keys",
		"nothing is released",
		"an unknown key is an error",
		"a take is in two steps, and the first has another key",
		"cut is not called",
	} {
		t.Run(defect, func(t *testing.T) {
			target, found := newTarget(defect), []string(nil)
			for _, c := range checks() {
				if err := target.run(t.Context(), c); err != nil {
					found = append(found, c.name)
				}
			}
			if len(found) == 0 {
				t.Error("no test notices it")
			}
			t.Logf("noticed by: %s", strings.Join(found, "; "))
		})
	}
}

func TestTransportCutsBeforeAndAfterRequest(t *testing.T) {
	served := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { served++; _, _ = io.WriteString(w, "served") }))
	defer server.Close()
	for at, want := range map[int]int{1: 0, 2: 1, 3: 1} {
		served = 0
		calls := 0
		c := &http.Client{Transport: Transport(http.DefaultTransport, func() error {
			if calls++; calls == at {
				return errCut
			}
			return nil
		})}
		response, err := c.Get(server.URL)
		if err == nil {
			err = response.Body.Close()
		}
		if served != want || errors.Is(err, errCut) != (at < 3) {
			t.Errorf("cut at %d: %d requests are served (%v), want %d", at, served, err, want)
		}
	}
}

func TestTargetWithoutSystemFails(t *testing.T) {
	target := newTarget("")
	target.New = func(func() error) (provisioner.Provisioner, error) { return nil, fmt.Errorf("no system") }
	if err := target.run(t.Context(), checks()[0]); err == nil {
		t.Error("a target whose process does not start passes")
	}
}
