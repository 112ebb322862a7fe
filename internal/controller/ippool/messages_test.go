package ippool

import (
	"net/netip"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/adapt"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
	"github.com/cadastre-dev/cadastre/test/lint/messages"
)

// TestTheConditionsOfAPoolSayWhatToDo has pools in every state, and what their CIDR may not
// be recorded for.
func TestTheConditionsOfAPoolSayWhatToDo(t *testing.T) {
	cidr := netip.MustParsePrefix("10.0.0.0/24")
	withheld := ipam.Pool{CIDR: cidr, Withheld: space.NewRanges(cidr, []space.Range{space.RangeOf(cidr)})}
	home := ipam.DomainNamed("default", ipam.IPv4)
	paused := map[string]string{v1alpha1.AnnotationPaused: ""}
	both := map[string]string{v1alpha1.AnnotationPaused: "", v1alpha1.AnnotationClusterAPIPaused: ""}
	var rows []messages.Row
	for _, test := range []struct {
		annotations map[string]string
		pool        ipam.Pool
		err         error
		exhausted   bool
	}{
		{pool: ipam.Pool{CIDR: cidr}},
		{pool: ipam.Pool{CIDR: cidr}, exhausted: true},
		{pool: withheld, exhausted: true},
		{pool: ipam.Pool{CIDR: cidr, Terminating: true}},
		{pool: ipam.Pool{CIDR: cidr, Paused: true}, annotations: paused},
		{pool: ipam.Pool{CIDR: cidr, Paused: true}, annotations: both},
		{err: &ipam.ExhaustedError{Pools: []ipam.PoolKey{ipam.PoolNamed("above")}, Bits: 24, Largest: 26}},
		{err: &ipam.TakenError{Block: cidr, Pool: home, Overlap: cidr, Holder: adapt.HolderOfPool(ipam.PoolNamed("other"))}},
		{err: &ipam.TakenError{Block: cidr, Pool: ipam.PoolNamed("above")}},
	} {
		now, err := whyUnserved(test.err)
		if err != nil {
			t.Fatal(err)
		}
		obj := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: test.annotations}}
		(&Controller{}).conditions(&scope{obj: obj, pool: test.pool}, now, test.exhausted)
		for _, c := range obj.Status.Conditions {
			if c.Message != "" {
				rows = append(rows, messages.Row{Object: "IPPool", On: "condition " + c.Type, Answer: string(c.Status) + ", " + c.Reason, Message: c.Message})
			}
		}
	}
	messages.Golden(t, rows)
}
