package ledger

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// TestRecordIsSmall fails when the memory for a record grows: with the claim in the cache it is
// the memory that the operator needs for each block.
func TestRecordIsSmall(t *testing.T) {
	const many, most = 20_000, 500 // bytes
	l := New(Options{})
	texts := make([][]byte, many)
	for i := range texts {
		texts[i] = allocationText(t, i)
	}
	before := heap()
	for _, text := range texts {
		obj := &v1alpha1.IPAllocation{}
		if err := json.Unmarshal(text, obj); err != nil {
			t.Fatal(err)
		}
		if err := (feed{l}).Add(obj); err != nil {
			t.Fatal(err)
		}
		l.SetClaimed(ipam.Name{Namespace: obj.Namespace, Name: obj.Name}, true)
	}
	each := (heap() - before) / many
	runtime.KeepAlive(texts)
	runtime.KeepAlive(l)
	t.Logf("a record takes %d bytes", each)
	if each > most {
		t.Errorf("a record takes %d bytes, want %d at most", each, most)
	}
}

// allocationText returns the nth record as the API server sends it.
func allocationText(t *testing.T, n int) []byte {
	t.Helper()
	obj := convert.Allocation(ipam.Record{
		Name:  ipam.Name{Namespace: "team", Name: fmt.Sprintf("c-%06d-abcdefgh", n)},
		Block: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n >> 12), byte(n >> 4), byte(n << 4)}), 28),
		Pool:  ipam.PoolKey{Kind: ipam.PoolKindIPPool, Name: "corporate"}, Class: "networks",
		Holder:  ipam.Holder{Group: v1alpha1.GroupVersion.Group, Kind: "IPClaim", Namespace: "team", Name: fmt.Sprintf("c-%06d", n)},
		Purpose: ipam.PurposeClaim, Reclaim: ipam.ReclaimDelete, State: ipam.StateBound, RequestedBy: "system:serviceaccount:team:deployer",
	})
	obj.UID, obj.ResourceVersion = types.UID(fmt.Sprintf("6f9619ff-8b86-d011-b42d-%012d", n)), fmt.Sprint(100000+n)
	text, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func heap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
