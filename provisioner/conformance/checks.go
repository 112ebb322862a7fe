package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
)

// checks returns the tests, in order.
func checks() []check {
	return []check{
		{name: "all ranges can be had, and do not overlap", run: areDisjoint},
		{name: "a key keeps its range until it is released", run: keepsRange},
		{name: "a process that starts knows the ranges of former ones", run: survivesRestart},
		{name: "concurrent calls for one key get one range", run: oneKeyConcurrently},
		{name: "a call of another process between any two requests gets the same range", run: processesInterleaved},
		{name: "concurrent calls for several keys get ranges that do not overlap", run: keysConcurrently},
		{name: "the release of a key keeps those of others", run: releaseKeepsOthers},
		{name: "the release of a key without a range succeeds", run: releaseIsIdempotent},
		{name: "a released range can be had again", run: releasedIsFree},
		{name: "without a free range there is an error", run: exhausted},
		{name: "a range that the key has is returned again", run: confirmsRange},
		{name: "a range that the system has forgotten is had again", forgets: true, run: reclaimsRange},
		{name: "a range that another key has is not given", forgets: true, run: refusesTakenRange},
		{name: "a call with a context that is done changes nothing for good", run: contextIsDone},
		{name: "a cut between any two requests of Provision loses no range", run: provisionIsCut},
		{name: "a release after a cut between any two requests of Provision frees all", run: releasedAfterCut},
		{name: "a cut between any two requests of Release loses no range", run: releaseIsCut},
	}
}

func checkNumber(name string) int {
	return slices.IndexFunc(checks(), func(c check) bool { return c.name == name })
}

func keepsRange(x *trial) error {
	key := x.key(0)
	block, err := x.provision(key, netip.Prefix{})
	if err != nil {
		return err
	}
	for range 3 {
		if err := x.expect(key, block); err != nil {
			return err
		}
	}
	return nil
}

func survivesRestart(x *trial) error {
	key := x.key(0)
	block, err := x.provision(key, netip.Prefix{})
	if err != nil {
		return err
	}
	if err := x.restart(nil); err != nil {
		return err
	}
	if err := x.expect(key, block); err != nil {
		return err
	}
	if err := x.restart(nil); err != nil {
		return err
	}
	return x.expectReleased(key)
}

func areDisjoint(x *trial) error {
	_, err := x.provisionAll(x.someKeys(0, x.Ranges)...)
	return err
}

// concurrently calls Provision for each of the keys at the same time.
func (x *trial) concurrently(keys []string) ([]netip.Prefix, error) {
	blocks, errs := make([]netip.Prefix, len(keys)), make([]error, len(keys))
	var calls sync.WaitGroup
	for i, key := range keys {
		calls.Go(func() { blocks[i], errs[i] = x.provision(key, netip.Prefix{}) })
	}
	calls.Wait()
	return blocks, errors.Join(errs...)
}

// oneKeyConcurrently expects one range, and no further one that is lost. A call may fail, but not the
// next one.
func oneKeyConcurrently(x *trial) error {
	key := x.key(0)
	blocks, _ := x.concurrently([]string{key, key, key, key})
	block, err := x.provision(key, netip.Prefix{})
	if err != nil {
		return err
	}
	for _, other := range blocks {
		if other.IsValid() && other != block {
			return fmt.Errorf("one key gets %s and %s", other, block)
		}
	}
	return x.expectReleased(key)
}

// processesInterleaved has another process call Provision for the key at each place before and after a
// request of the first one. One of the calls may fail, but not the next one.
func processesInterleaved(x *trial) error {
	for n := 0; ; n++ {
		key, passed, other := x.key(n), 0, netip.Prefix{}
		if err := x.restart(func() error {
			if passed++; passed != n+1 {
				return nil
			}
			first := x.process
			defer func() { x.process = first }()
			if err := x.restart(nil); err != nil {
				return err
			}
			other, _ = x.provision(key, netip.Prefix{})
			return nil
		}); err != nil {
			return err
		}
		block, err := x.provision(key, netip.Prefix{})
		if passed <= n {
			return errors.Join(err, x.expectRequests(passed))
		}
		if err := x.restart(nil); err != nil {
			return err
		}
		last, lastErr := x.provision(key, netip.Prefix{})
		if lastErr != nil {
			return lastErr
		}
		if err == nil && block != last || other.IsValid() && other != last {
			return fmt.Errorf("one key gets %s, another process %s at the %d. of the places before and after its requests, and then %s: let the system refuse a second range for a key, or keep the first one and return the others", block, other, n+1, last)
		}
		if err := x.expectReleased(key); err != nil {
			return err
		}
	}
}

// keysConcurrently allows calls to fail, but not the next ones.
func keysConcurrently(x *trial) error {
	keys := x.someKeys(0, x.Ranges)
	blocks, _ := x.concurrently(keys)
	blocks = slices.DeleteFunc(blocks, func(b netip.Prefix) bool { return !b.IsValid() })
	if err := disjoint(blocks); err != nil {
		return err
	}
	_, err := x.provisionAll(keys...)
	return err
}

func releaseKeepsOthers(x *trial) error {
	keys := x.someKeys(0, 3)
	blocks, err := x.provisionAll(keys...)
	if err != nil {
		return err
	}
	if err := x.release(keys[1]); err != nil {
		return err
	}
	_, err = x.provisionAll(x.someKeys(10, x.Ranges-2)...) // so that a range that is free by mistake is given
	return errors.Join(err, x.expect(keys[0], blocks[0]), x.expect(keys[2], blocks[2]))
}

func releaseIsIdempotent(x *trial) error {
	never, key := x.key(0), x.key(1)
	if _, err := x.provision(key, netip.Prefix{}); err != nil {
		return err
	}
	return x.release(never, key, key)
}

func releasedIsFree(x *trial) error {
	keys := x.someKeys(0, x.Ranges)
	for range 2 {
		if _, err := x.provisionAll(keys...); err != nil {
			return err
		}
		if err := x.release(keys...); err != nil {
			return err
		}
	}
	return nil
}

func exhausted(x *trial) error {
	keys := x.someKeys(0, x.Ranges)
	blocks, err := x.provisionAll(keys...)
	if err != nil {
		return err
	}
	request := x.Request
	request.Key = x.key(x.Ranges)
	if block, err := x.process.Provision(x.ctx, request); err == nil {
		return fmt.Errorf("Provision(%s) returns %q after all ranges are given: return an error", request.Key, block)
	}
	if err := x.release(keys[0]); err != nil {
		return err
	}
	block, err := x.provision(request.Key, netip.Prefix{})
	return errors.Join(err, disjoint(append(blocks[1:], block)))
}

func confirmsRange(x *trial) error {
	key := x.key(0)
	block, err := x.provision(key, netip.Prefix{})
	if err != nil {
		return err
	}
	again, err := x.provision(key, block)
	if err == nil && again != block {
		err = fmt.Errorf("Provision(%s) returns %s for the range %s: return that", key, again, block)
	}
	return err
}

func reclaimsRange(x *trial) error {
	keys := x.someKeys(0, x.Ranges)
	blocks, err := x.provisionAll(keys...)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if err := x.Forget(x.ctx, key); err != nil {
			return err
		}
	}
	if err := x.restart(nil); err != nil {
		return err
	}
	for i, key := range slices.Backward(keys) { // not in the order in which they were given
		again, err := x.provision(key, blocks[i])
		if err != nil {
			return err
		}
		if again != blocks[i] {
			return fmt.Errorf("Provision(%s) returns %s for the range %s, which a pool has: return that, or an error", key, again, blocks[i])
		}
		if err := x.expect(key, blocks[i]); err != nil {
			return err
		}
	}
	return nil
}

func refusesTakenRange(x *trial) error {
	former, other := x.key(0), x.key(1)
	block, err := x.provision(former, netip.Prefix{})
	if err != nil {
		return err
	}
	if err := x.Forget(x.ctx, former); err != nil {
		return err
	}
	if again, err := x.provision(other, block); err != nil || again != block {
		return errors.Join(err, fmt.Errorf("Provision(%s) returns %s for the range %s", other, again, block))
	}
	request := x.Request
	request.Key, request.Range = former, block
	if again, err := x.process.Provision(x.ctx, request); err == nil {
		return fmt.Errorf("Provision(%s) returns %s, while another key has %s: return an error", former, again, block)
	}
	return x.expect(other, block)
}

func contextIsDone(x *trial) error {
	key := x.key(0)
	ctx, cancel := context.WithCancel(x.ctx)
	cancel()
	request := x.Request
	request.Key = key
	_, _ = x.process.Provision(ctx, request)
	block, err := x.provision(key, netip.Prefix{})
	if err != nil {
		return err
	}
	_ = x.process.Release(ctx, key)
	if err := x.release(key); err != nil {
		return fmt.Errorf("after %s: %w", block, err)
	}
	return x.expectFree(x.Ranges)
}

// errCut is the error of a request that a cut prevents, or whose answer it loses.
var errCut = errors.New("the process ends here")

// expectRequests expects that the implementation makes requests, unless the target states otherwise.
func (x *trial) expectRequests(cuts int) error {
	if cuts == 0 && !x.WithoutRequests {
		return errors.New("cut is not called: let New have it called before and after each request, as by Transport, or set Target.WithoutRequests")
	}
	return nil
}

// eachCut calls act in a process that ends at the n-th cut, for each n, and then check in another one.
func (x *trial) eachCut(act, check func(n int) error) error {
	for n := 0; ; n++ {
		var mu sync.Mutex
		passed := 0
		if err := x.restart(func() error {
			mu.Lock()
			defer mu.Unlock()
			if passed++; passed > n {
				return errCut
			}
			return nil
		}); err != nil {
			return err
		}
		actErr := act(n)
		if err := x.restart(nil); err != nil {
			return err
		}
		if err := check(n); err != nil {
			return fmt.Errorf("after a cut at the %d. of the places before and after its requests: %w", n+1, err)
		}
		if passed <= n {
			return errors.Join(actErr, x.expectRequests(passed))
		}
	}
}

func provisionIsCut(x *trial) error {
	var first netip.Prefix
	return x.eachCut(func(n int) (err error) {
		first, err = x.provision(x.key(n), netip.Prefix{})
		if err != nil {
			first = netip.Prefix{}
		}
		return err
	}, func(n int) error {
		key := x.key(n)
		block, err := x.provision(key, netip.Prefix{})
		if err == nil && first.IsValid() && first != block {
			err = fmt.Errorf("the key has %s, and then %s", first, block)
		}
		if err != nil {
			return err
		}
		return x.expectReleased(key)
	})
}

func releasedAfterCut(x *trial) error {
	return x.eachCut(func(n int) error {
		_, err := x.provision(x.key(n), netip.Prefix{})
		return err
	}, func(n int) error {
		return x.expectReleased(x.key(n))
	})
}

func releaseIsCut(x *trial) error {
	return x.eachCut(func(n int) error {
		key, process := x.key(n), x.process
		if err := x.restart(nil); err != nil {
			return err
		}
		if _, err := x.provision(key, netip.Prefix{}); err != nil {
			return err
		}
		x.process = process
		return x.release(key)
	}, func(n int) error {
		return x.expectReleased(x.key(n))
	})
}
