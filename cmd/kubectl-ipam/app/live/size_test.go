package live

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// many is the number of records of an operator of ten clusters of 10,000 addresses.
const many = 100_000

// heap returns the memory in use, in MiB.
func heap() float64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc) / (1 << 20)
}

// TestRegisterOf100000RecordsFitsInMemory uses so many single addresses, scattered over a /8 as
// no operator hands them out.
func TestRegisterOf100000RecordsFitsInMemory(t *testing.T) {
	before := heap()
	l := newLive(clock.RealClock{})
	objects{}.put(t, l, build.Pool("p").CIDR("10.0.0.0/8").Obj())
	begin := time.Now()
	if err := l.recordStore().Replace(allScattered(), ""); err != nil {
		t.Fatal(err)
	}
	l.publish()
	read, kept := time.Since(begin), heap()-before
	begin = time.Now()
	r := l.Register()
	built, asked := time.Since(begin), heap()-before
	begin = time.Now()
	subscription, bytes := l.Subscribe(), 0
	for blocks := range subscription.Blocks() {
		line, err := BlocksLine(blocks)
		if err != nil {
			t.Fatal(err)
		}
		bytes += len(line)
	}
	t.Logf("%d records: %.0f MiB in %s; %.0f MiB with a register for questions, built in %s; %.0f MiB of messages, written in %s",
		many, kept, read.Round(time.Millisecond), asked, built.Round(time.Millisecond), float64(bytes)/(1<<20), time.Since(begin).Round(time.Millisecond))
	if kept > 150 || asked > 200 {
		t.Errorf("%d records take %.0f MiB, and %.0f MiB with a register: want 150 and 200 at most", many, kept, asked)
	}
	runtime.KeepAlive(r)
	runtime.KeepAlive(l)
}

func allScattered() []any {
	listed := make([]any, many)
	for i := range many {
		listed[i] = scattered(i)
	}
	return listed
}

// scattered returns the i-th record of many, in the form of a list's item.
func scattered(i int) any {
	address := netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, 10<<24+uint32(i)*2654435761>>8)))
	claim := ipam.Name{Namespace: fmt.Sprintf("team-%02d", i%50), Name: fmt.Sprintf("workload-%06d", i)}
	uid := func(of int) string { return fmt.Sprintf("%08x-0000-4000-8000-%012x", of, i) }
	obj := convert.Allocation(ipam.Record{
		Name: ipam.Name{Namespace: claim.Namespace, Name: claim.Name + "-x7k2m9qd"}, UID: uid(1), Version: fmt.Sprint(1_000_000 + i),
		Block: netip.PrefixFrom(address, 32), Pool: ipam.PoolNamed("p"), Class: strings.Clone("cluster-nodes"),
		Holder: convert.HolderOfClaim(claim), HolderUID: uid(2), Purpose: ipam.PurposeClaim, Reclaim: ipam.ReclaimDelete, State: ipam.StateBound,
		Project: strings.Clone(claim.Namespace), RequestedBy: "system:serviceaccount:" + claim.Namespace + ":deployer",
	})
	obj.UID, obj.CreationTimestamp = types.UID(uid(1)), metav1.Unix(1_800_000_000, 0)
	return readRecord(obj)
}
