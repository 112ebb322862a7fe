package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// FuzzEvents plays any sequence of events and of steps of processes between them, three bytes a
// step: the step, the index of one of eight names, and its variant. A twin of maps and an array of
// addresses gives the expected result.
func FuzzEvents(f *testing.F) {
	f.Add([]byte{3, 0, 0, 0, 0, 0x80, 5, 0, 0})                                           // hold, record, confirm
	f.Add([]byte{3, 0, 0, 0, 1, 3, 0, 0, 0x80, 5, 0, 0})                                  // a rival was first
	f.Add([]byte{3, 0, 0, 0, 0, 0x80, 2, 0, 0, 5, 0, 0})                                  // gone before it is confirmed
	f.Add([]byte{3, 0, 0, 3, 1, 0, 0, 0, 0x80, 0, 1, 0x80, 6, 0, 0xff, 5, 0, 0, 5, 1, 0}) // a list in between
	f.Add([]byte{0, 0, 0, 0, 0, 1, 2, 0, 0, 7, 0, 0, 3, 0, 0, 7, 0, 0, 0, 0, 0})          // one name, several records
	f.Add([]byte{0, 0, 0, 1, 0, 2, 3, 1, 0, 6, 0, 0xff, 1, 0, 0, 1, 0, 2, 2, 0, 0})       // unreadable for a while
	f.Fuzz(func(t *testing.T, script []byte) {
		p := &played{
			ledger: newLedger(1), objects: map[string]*v1alpha1.IPAllocation{},
			holds: map[string]*Hold{}, formers: map[string]types.UID{}, verdicts: map[string]*watchVerdict{},
		}
		must(t, feed{p.ledger}.Replace(recordList(), "0"))
		for len(script) >= 3 && p.step < 300 {
			p.step++
			p.play(t, script[0]%8, strconv.Itoa(int(script[1]%8)), script[2])
			script = script[3:]
			if got, want := counts(p.ledger), twin(maps.Values(p.objects), maps.Values(p.holds)); got != want {
				t.Fatalf("step %d: got %s, want %s", p.step, got, want)
			}
		}
	})
}

// played holds a ledger and its twin.
type played struct {
	ledger  *Ledger
	step    int
	objects map[string]*v1alpha1.IPAllocation
	holds   map[string]*Hold
	// formers holds the former records of names which are held.
	formers  map[string]types.UID
	verdicts map[string]*watchVerdict
}

// watchVerdict holds the verdict of the watch on a record that is awaited.
type watchVerdict struct {
	uid  types.UID
	ours bool
}

func (p *played) play(t *testing.T, what byte, name string, how byte) {
	t.Helper()
	obj, hold := p.objects[name], p.holds[name]
	switch {
	case what == 0:
		p.add(t, name, how)
	case what == 1 && obj != nil:
		next := obj.DeepCopy()
		next.ResourceVersion += "+"
		if how&1 != 0 {
			now := metav1.Now()
			next.DeletionTimestamp = &now // frees nothing
		}
		if how&2 != 0 {
			next.Spec.PoolRef = nil // the ledger keeps the last readable state
		}
		p.objects[name] = next
		p.read(t, name, feed{p.ledger}.Update(next))
		p.sight(name)
	case what == 2 && obj != nil:
		p.read(t, name, feed{p.ledger}.Delete(obj))
		p.lose(name)
		delete(p.objects, name)
	case what == 3:
		p.hold(t, name)
	case what == 4 && hold != nil:
		hold.Drop()
		p.end(name)
	case what == 5 && hold != nil:
		p.confirm(t, name, how)
	case what == 6:
		p.list(t, how)
	case what == 7 && hold != nil:
		hold.Abandon()
		p.end(name)
	}
}

// read checks the result of reading the object of a name.
func (p *played) read(t *testing.T, name string, err error) {
	t.Helper()
	if readable := p.objects[name].Spec.PoolRef != nil; readable != (err == nil) {
		t.Fatalf("step %d: %v, of an object that can be read (%t)", p.step, err, readable)
	}
}

// add stores a record of a name: of the block that is held for it, or of another one.
func (p *played) add(t *testing.T, name string, how byte) {
	block := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, how << 2}), 26+int(how>>5)%7).Masked()
	if h := p.holds[name]; h != nil && how&0x80 != 0 {
		block = h.Block
	}
	if p.objects[name] != nil {
		p.lose(name) // its deletion was missed
	}
	p.objects[name] = allocation(name, fmt.Sprintf("uid-%d", p.step), strconv.Itoa(p.step), block.String())
	must(t, feed{p.ledger}.Add(p.objects[name]))
	p.sight(name)
}

// list shows a list in which some records are missing, and some are new.
func (p *played) list(t *testing.T, keep byte) {
	var all []any
	for n := range 8 {
		name := strconv.Itoa(n)
		switch kept, there := keep&(1<<n) != 0, p.objects[name] != nil; {
		case !kept && there:
			p.lose(name)
			delete(p.objects, name)
		case kept && !there:
			block := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(16 * n)}), 27).Masked()
			if h := p.holds[name]; h != nil {
				block = h.Block
			}
			p.objects[name] = allocation(name, fmt.Sprintf("uid-%d-%d", p.step, n), strconv.Itoa(p.step), block.String())
			fallthrough
		case kept:
			all = append(all, p.objects[name])
		}
	}
	must(t, feed{p.ledger}.Replace(recordList(all...), "1"))
	for name := range p.objects {
		p.sight(name)
	}
}

func (p *played) hold(t *testing.T, name string) {
	t.Helper()
	h, err := p.ledger.Hold(ask(name))
	var full *ipam.ExhaustedError
	switch {
	case p.holds[name] != nil:
		if !errors.Is(err, ipam.ErrUnconfirmed) {
			t.Fatalf("step %d: a second hold for one name: %v", p.step, err)
		}
	case errors.As(err, &full):
		if block, ok := p.room(); ok {
			t.Fatalf("step %d: full, but %s is free", p.step, block)
		}
	case err != nil:
		t.Fatalf("step %d: %v", p.step, err)
	case p.inUse(h.Block):
		t.Fatalf("step %d: %s was free", p.step, h.Block)
	default:
		p.holds[name] = h
		if former := p.objects[name]; former != nil {
			p.formers[name] = former.UID
		}
	}
}

func (p *played) confirm(t *testing.T, name string, how byte) {
	t.Helper()
	verdict, want := p.verdicts[name], ipam.ErrUnconfirmed
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // it does not wait, or the code is wrong
	defer cancel()
	uid := types.UID("another")
	if obj := p.objects[name]; obj != nil && how&1 == 0 {
		uid = obj.UID
	}
	switch {
	case verdict == nil:
		cancel() // it would wait
	case verdict.ours && verdict.uid == uid:
		want = nil
	default:
		want = ErrLost
	}
	if err := p.holds[name].Confirm(ctx, string(uid)); !errors.Is(err, want) || want == nil && err != nil {
		t.Fatalf("step %d: confirming %s: got %v, want %v", p.step, name, err, want)
	}
	p.end(name)
}

func (p *played) end(name string) {
	delete(p.holds, name)
	delete(p.formers, name)
	delete(p.verdicts, name)
}

// sight notes that the watch shows a record that can be awaited.
func (p *played) sight(name string) {
	h := p.holds[name]
	if h == nil || p.verdicts[name] != nil || p.objects[name].UID == p.formers[name] {
		return
	}
	block := netip.MustParsePrefix(p.objects[name].Spec.CIDR)
	ours := block == h.Block
	for other, obj := range p.objects {
		ours = ours && (other == name || !netip.MustParsePrefix(obj.Spec.CIDR).Overlaps(block))
	}
	p.verdicts[name] = &watchVerdict{uid: p.objects[name].UID, ours: ours}
}

func (p *played) lose(name string) {
	obj := p.objects[name]
	if p.holds[name] == nil || obj == nil || obj.UID == p.formers[name] {
		return
	}
	if p.verdicts[name] == nil {
		p.verdicts[name] = &watchVerdict{uid: obj.UID}
	}
	if p.verdicts[name].uid == obj.UID {
		p.verdicts[name].ours = false
	}
}

// room returns a block of the length of the request that nothing overlaps.
func (p *played) room() (netip.Prefix, bool) {
	for i := range 16 {
		block := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(16 * i)}), 28)
		if !p.inUse(block) {
			return block, true
		}
	}
	return netip.Prefix{}, false
}

func (p *played) inUse(block netip.Prefix) bool {
	used := []netip.Prefix{withheld}
	for _, obj := range p.objects {
		used = append(used, netip.MustParsePrefix(obj.Spec.CIDR))
	}
	for _, h := range p.holds {
		used = append(used, h.Block)
	}
	return slices.ContainsFunc(used, block.Overlaps)
}
