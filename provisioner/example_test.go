package provisioner_test

import (
	"context"
	"errors"
	"log"
	"net/netip"
	"sync"
	"testing"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/provisioner"
	"github.com/cadastre-dev/cadastre/provisioner/conformance"
)

// Shelf gives out ranges of 10.0.0.0/16. It is a system and its provisioner in one, and loses all when the
// process ends: a real one stores the key with each range at the system.
type Shelf struct {
	mu     sync.Mutex
	ranges map[string]netip.Prefix
}

// Provision implements provisioner.Provisioner.
func (s *Shelf) Provision(_ context.Context, r provisioner.Request) (netip.Prefix, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if block, ok := s.ranges[r.Key]; ok {
		return block, nil
	}
	if r.Family != v1alpha1.IPv4 || r.PrefixLength != 24 {
		return netip.Prefix{}, errors.New("only ranges of /24 of IPv4 are available: set parameters.poolPrefixLength to 24")
	}
	for i := range 256 {
		block := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i)}), 24)
		if (!r.Range.IsValid() || r.Range == block) && !s.isInUse(block) {
			s.ranges[r.Key] = block
			return block, nil
		}
	}
	return netip.Prefix{}, errors.New("no range of 10.0.0.0/16 is free")
}

func (s *Shelf) isInUse(block netip.Prefix) bool {
	for _, other := range s.ranges {
		if other == block {
			return true
		}
	}
	return false
}

// Release implements provisioner.Provisioner.
func (s *Shelf) Release(_ context.Context, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ranges, key)
	return nil
}

// A program serves the classes with spec.provisioner ipam.example.com/shelf.
func ExampleRun() {
	err := provisioner.Run(ctrl.SetupSignalHandler(), ctrl.GetConfigOrDie(), &Shelf{ranges: map[string]netip.Prefix{}}, provisioner.Options{
		Name: "ipam.example.com/shelf", Namespace: "shelf-system",
	})
	if err != nil {
		log.Fatal(err)
	}
}

func TestShelfConforms(t *testing.T) {
	shelf := &Shelf{ranges: map[string]netip.Prefix{}}
	conformance.Test(t, conformance.Target{
		New:     func(func() error) (provisioner.Provisioner, error) { return shelf, nil },
		Request: provisioner.Request{Cluster: "uid", Class: "leased", Family: v1alpha1.IPv4, PrefixLength: 24},
		Ranges:  256, WithoutRequests: true,
		Forget: shelf.Release,
	})
}
