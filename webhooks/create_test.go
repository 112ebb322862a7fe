package webhooks

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

func TestGenerateNameIsResolved(t *testing.T) {
	long := strings.Repeat("x", 80)
	for _, c := range []struct {
		name, generateName, want string
		random                   int // characters after it
	}{
		{name: "a", want: "a"},
		{name: "a", generateName: "b-", want: "a"},
		{generateName: "b-", want: "b-", random: 8},
		{generateName: long, want: long[:58], random: 8},
		{},
	} {
		got := nameFor(&metav1.ObjectMeta{Name: c.name, GenerateName: c.generateName})
		if !strings.HasPrefix(got, c.want) || len(got) != len(c.want)+c.random {
			t.Errorf("name %q, generateName %q: %q, want %q and %d characters", c.name, c.generateName, got, c.want, c.random)
		}
	}
}

func TestInvalidTimeIsRefusedByField(t *testing.T) {
	shared := &services{schemas: readSchemas()}
	for name, text := range map[string]string{"empty": "", "blank": " ", "a number": "90", "words": "a while"} {
		t.Run(name, func(t *testing.T) {
			d := &draft{object: map[string]any{"spec": map[string]any{"cidr": "10.0.0.0/24", "reuseDelay": text}}}
			answer := shared.unreadable("IPPool", d, errors.New("the decoder's error"))
			if answer.Allowed || answer.Result.Code != 422 || !strings.Contains(answer.Result.Message, "spec.reuseDelay") {
				t.Errorf("%+v", answer.Result)
			}
		})
	}
}

// TestCreateWaitsForOwnRecordOfReadyPool reads live a pool that is ready, whose record is shown a
// moment later: the object is created with its block nevertheless.
func TestCreateWaitsForOwnRecordOfReadyPool(t *testing.T) {
	record := poolRecord(ipam.Pool{
		Key: ipam.PoolNamed("late"), CIDR: netip.MustParsePrefix("10.8.0.0/24"),
		Home: ipam.PoolKey{Kind: ipam.PoolKindRoutingDomain, Name: "default", Family: ipam.IPv4},
	})
	for kind, object := range map[string]string{
		"IPClaim": `{"metadata":{"name":"c","namespace":"team"},"spec":{"poolRef":{"kind":"IPPool","name":"late"},"prefixLength":28}}`,
		"IPPool":  `{"metadata":{"name":"child"},"spec":{"parentRef":{"kind":"IPPool","name":"late"},"prefixLength":28}}`,
	} {
		t.Run(kind, func(t *testing.T) {
			s := newStage(t)
			late := build.Pool("late").CIDR("10.8.0.0/24").Domain("default").Obj()
			late.Status.FirstReadyTime = new(metav1.Unix(1, 0))
			must(t, s.store.Create(t.Context(), late))
			isStored := make(chan error, 1)
			s.fails.Store("get IPPool", func() error {
				s.fails.Delete("get IPPool")
				time.AfterFunc(20*time.Millisecond, func() { isStored <- s.store.Create(context.Background(), convert.Allocation(record)) })
				return nil
			})
			if answer := s.answer(t, review(kind, object, "", 0)); !strings.HasPrefix(answer, "allowed") || !strings.Contains(answer, "10.8.0.0/28") {
				t.Fatalf("it is answered: %s", answer)
			}
			must(t, <-isStored)
		})
	}
}
