// Package conformance tests an implementation of provisioner.Provisioner: what Run relies on, while
// requests to the system behind it fail and while the process ends between any two of them.
//
//	func TestConformance(t *testing.T) {
//		conformance.Test(t, conformance.Target{New: ..., Request: ..., Ranges: 4})
//	}
package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/provisioner"
)

// Target describes the implementation to test, and the system behind it. Its functions may be called
// concurrently.
type Target struct {
	// New returns the implementation as a process has it that has just started: the ranges that former ones
	// got are known to the system only. The implementation calls cut before and after each request to the
	// system; if cut returns an error, the process ends there, and the implementation returns the
	// error. Transport does that for HTTP.
	New func(cut func() error) (provisioner.Provisioner, error)
	// Request is the request to make. Each test sets Key, and some set Range.
	Request provisioner.Request
	// Ranges is the number of ranges for such requests that the system has, all of them free: 4 or more. All are
	// free after each test that passes.
	Ranges int
	// WithoutRequests states that the implementation makes no requests, and that New does not call cut: the
	// implementation and the system are one process.
	WithoutRequests bool
	// Settles is the time within which the system frees a range that a failed request has left without a
	// holder. Until then calls may fail, and are repeated, as Run does. 0: at once.
	Settles time.Duration
	// Forget makes the system forget the range of a key, as after a restore of its backup. Nil: the tests of
	// that are skipped.
	Forget func(ctx context.Context, key string) error
}

// Test runs all tests against the target, one after the other.
func Test(t *testing.T, target Target) {
	t.Helper()
	if target.Ranges < 4 {
		t.Fatalf("Target.Ranges is %d: let the system have 4 ranges or more", target.Ranges)
	}
	for i, c := range checks() {
		passed := t.Run(c.name, func(t *testing.T) {
			if c.forgets && target.Forget == nil {
				t.Skip("Target.Forget is not set")
			}
			if err := target.run(t.Context(), c); err != nil {
				t.Error(err)
			}
		})
		if i == 0 && !passed {
			t.Fatal("the other tests are not run: each needs what this one does")
		}
	}
}

// Transport returns a transport that calls cut before and after each request.
func Transport(next http.RoundTripper, cut func() error) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		if err := cut(); err != nil {
			return nil, err
		}
		response, err := next.RoundTrip(request)
		if cutErr := cut(); cutErr != nil {
			if err == nil {
				_ = response.Body.Close() // it does not arrive
			}
			return nil, cutErr
		}
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// check represents one test.
type check struct {
	name    string
	forgets bool
	run     func(*trial) error
}

const (
	// patience bounds one test, beside the time that the system takes to settle.
	patience = time.Minute
	// pause is the time between two calls while the system settles.
	pause = 100 * time.Millisecond
)

// run runs a check, and returns the ranges of all keys that it used.
func (target Target) run(ctx context.Context, c check) error {
	ctx, cancel := context.WithTimeout(ctx, patience+20*target.Settles)
	defer cancel()
	x := &trial{Target: target, ctx: ctx, name: c.name}
	if err := x.restart(nil); err != nil {
		return err
	}
	err := c.run(x)
	if rerr := x.restart(nil); rerr != nil {
		return errors.Join(err, rerr)
	}
	for _, key := range x.keys {
		if rerr := x.process.Release(ctx, key); rerr != nil {
			err = errors.Join(err, fmt.Errorf("at the end, Release(%s) fails: %w", key, rerr))
		}
	}
	return err
}

// trial holds a test that runs.
type trial struct {
	Target
	//nolint:containedctx // of one test, and so are the methods
	ctx     context.Context
	name    string
	process provisioner.Provisioner

	mu   sync.Mutex
	keys []string
}

// restart replaces the process by another one. The cut may be nil.
func (x *trial) restart(cut func() error) error {
	if cut == nil {
		cut = func() error { return nil }
	}
	process, err := x.New(cut)
	if err != nil {
		return fmt.Errorf("Target.New fails: %w", err)
	}
	x.process = process
	return nil
}

// longestKey is the number of characters of a key that Request.Key allows.
const longestKey = 128

// key returns the key of a number, which is another one in each test, as long as a key may be, and differs
// from others in its last characters.
func (x *trial) key(n int) string {
	last := fmt.Sprintf("%02d-%04d", checkNumber(x.name), n)
	padding := strings.Repeat("conformance.", longestKey/len("conformance."))
	key := x.Request.Cluster + "." + padding[:longestKey-len(x.Request.Cluster)-1-len(last)-1] + "x" + last
	x.mu.Lock()
	defer x.mu.Unlock()
	x.keys = append(x.keys, key)
	return key
}

// repeat calls a function until it succeeds, the process has ended, or the system should have settled.
func (x *trial) repeat(call func() error) error {
	var last error
	if err := wait.PollUntilContextTimeout(x.ctx, pause, x.Settles+pause, true, func(context.Context) (bool, error) {
		last = call()
		return last == nil || x.Settles == 0 || errors.Is(last, errCut), nil
	}); last == nil {
		return err
	}
	return last
}

// provision calls Provision, and checks the form of the range.
func (x *trial) provision(key string, wanted netip.Prefix) (block netip.Prefix, err error) {
	request := x.Request
	request.Key, request.Range = key, wanted
	err = x.repeat(func() error {
		block, err = x.process.Provision(x.ctx, request)
		return err
	})
	switch {
	case err != nil:
		return block, fmt.Errorf("Provision(%s) fails: %w", key, err)
	case !block.IsValid() || block != block.Masked():
		return block, fmt.Errorf("Provision(%s) returns %q: return a prefix without host bits, or an error", key, block)
	case block.Bits() != request.PrefixLength || block.Addr().Is4() != (request.Family == v1alpha1.IPv4):
		return block, fmt.Errorf("Provision(%s) returns %s: return an %s range of /%d", key, block, request.Family, request.PrefixLength)
	}
	return block, nil
}

// provisionAll calls Provision for keys, and expects ranges that do not overlap.
func (x *trial) provisionAll(keys ...string) ([]netip.Prefix, error) {
	var blocks []netip.Prefix
	for _, key := range keys {
		block, err := x.provision(key, netip.Prefix{})
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, block)
	}
	return blocks, disjoint(blocks)
}

func disjoint(blocks []netip.Prefix) error {
	for i, a := range blocks {
		for _, b := range blocks[:i] {
			if a.Overlaps(b) {
				return fmt.Errorf("two keys have %s and %s", b, a)
			}
		}
	}
	return nil
}

// someKeys returns n new keys, from a number on.
func (x *trial) someKeys(from, n int) []string {
	var keys []string
	for i := range n {
		keys = append(keys, x.key(from+i))
	}
	return keys
}

// release calls Release for keys.
func (x *trial) release(keys ...string) error {
	for _, key := range keys {
		if err := x.repeat(func() error { return x.process.Release(x.ctx, key) }); err != nil {
			return fmt.Errorf("Release(%s) fails: %w", key, err)
		}
	}
	return nil
}

// expect calls Provision for a key, and expects a range that it had.
func (x *trial) expect(key string, had netip.Prefix) error {
	block, err := x.provision(key, netip.Prefix{})
	if err == nil && block != had {
		err = fmt.Errorf("Provision(%s) returns %s: return %s, which the key has until it is released", key, block, had)
	}
	return err
}

// expectReleased releases a key, and expects that all ranges are free.
func (x *trial) expectReleased(key string) error {
	if err := x.release(key); err != nil {
		return err
	}
	return x.expectFree(x.Ranges)
}

// expectFree expects that n ranges are free.
func (x *trial) expectFree(n int) error {
	keys := x.someKeys(1000, n)
	if _, err := x.provisionAll(keys...); err != nil {
		return fmt.Errorf("%d ranges should be free: %w", n, err)
	}
	return x.release(keys...)
}
