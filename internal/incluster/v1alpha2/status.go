package v1alpha2

import (
	"encoding/json"
	"math"
	"math/big"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	provider "sigs.k8s.io/cluster-api-ipam-provider-in-cluster/api/v1alpha2"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// PoolStatus holds the status of a pool. Of it, counts and conditions are stored.
type PoolStatus struct {
	v1alpha1.PoolStatus `json:",inline"`
}

// storedStatus is the status in the form of the in-cluster provider, with conditions.
type storedStatus struct {
	Addresses  *provider.InClusterIPPoolStatusIPAddresses `json:"ipAddresses,omitempty"`
	Conditions []metav1.Condition                         `json:"conditions,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (s PoolStatus) MarshalJSON() ([]byte, error) { return json.Marshal(s.stored()) }

// UnmarshalJSON implements json.Unmarshaler.
func (s *PoolStatus) UnmarshalJSON(data []byte) error {
	var stored storedStatus
	if err := json.Unmarshal(data, &stored); err != nil {
		return err
	}
	*s = stored.status()
	return nil
}

// stored returns the part of the status that is stored. Counts that an int cannot hold become
// math.MaxInt, as the in-cluster provider defines them.
func (s PoolStatus) stored() storedStatus {
	stored := storedStatus{Conditions: s.Conditions}
	if c := s.Capacity; c != nil {
		free, used, outOfRange := parse(c.Available), parse(c.Allocated), parse(c.OutOfRange)
		total := new(big.Int).Sub(new(big.Int).Add(free, used), outOfRange)
		stored.Addresses = &provider.InClusterIPPoolStatusIPAddresses{
			Total: saturated(total), Free: saturated(free), Used: saturated(used), OutOfRange: saturated(outOfRange),
		}
	}
	return stored
}

// status returns the status with what is stored of it, and the phase: the total of the capacity is
// without withheld addresses.
func (s storedStatus) status() PoolStatus {
	status := v1alpha1.PoolStatus{Conditions: s.Conditions, Phase: s.phase()}
	if a := s.Addresses; a != nil {
		status.Allocations = int64(a.Used)
		status.Capacity = &v1alpha1.Capacity{
			Total: strconv.Itoa(a.Total), Available: strconv.Itoa(a.Free), Allocated: strconv.Itoa(a.Used), OutOfRange: strconv.Itoa(a.OutOfRange),
		}
	}
	return PoolStatus{status}
}

// phase returns the phase that the condition Ready states; empty if there is none. While the in-cluster
// provider hands out the addresses, the pool is paused for Cadastre.
func (s storedStatus) phase() v1alpha1.PoolPhase {
	ready := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady)
	if ready == nil {
		return ""
	}
	switch ready.Reason {
	case v1alpha1.ReasonReady:
		return v1alpha1.PoolReady
	case v1alpha1.ReasonFull:
		return v1alpha1.PoolExhausted
	case v1alpha1.ReasonPaused, v1alpha1.ReasonProviderRunning:
		return v1alpha1.PoolPaused
	case v1alpha1.ReasonTerminating:
		return v1alpha1.PoolTerminating
	}
	return v1alpha1.PoolPending
}

func parse(count string) *big.Int {
	n, ok := new(big.Int).SetString(count, 10)
	if !ok {
		return new(big.Int)
	}
	return n
}

func saturated(n *big.Int) int {
	if n.IsInt64() {
		return int(n.Int64())
	}
	return math.MaxInt
}
