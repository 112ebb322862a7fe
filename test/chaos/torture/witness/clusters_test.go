package witness

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// networkClaim records a block and stores the claim of a Cluster's network that has it.
func (s *story) networkClaim(cluster, block string) {
	s.records("r", "claim", "r", block)
	s.stores(Claims, "claim", "c", fmt.Sprintf(`"metadata":{"namespace":"team","name":"claim","uid":"c","annotations":{%q:"%s/pods/0"}},`+
		`"spec":{"cidr":%q,"className":"shared","allocationName":"r"},"status":{"phase":"Bound"}`, networkAnnotation, cluster, block))
}

func (s *story) cluster(name, filled string) {
	s.stores(Clusters, name, "k-"+name, fmt.Sprintf(`"metadata":{"namespace":"team","name":%q,"uid":"k","annotations":{%q:%q}}`, name, filledAnnotation, filled))
}

func TestClusterHoldsBlocksByClaims(t *testing.T) {
	isLeft := func(s *story) bool {
		return slices.ContainsFunc(s.witness.Unsettled(), func(what string) bool { return strings.Contains(what, "left of a Cluster") })
	}
	scene(t, "that are stored before it", func(s *story) {
		s.networkClaim("prod", "10.0.0.7/32")
		if !isLeft(s) {
			t.Error("a claim without Cluster is not noticed")
		}
		s.cluster("prod", "variable.vip=10.0.0.7@shared,control-plane-endpoint=10.0.0.7")
		s.finds()
		if isLeft(s) {
			t.Error("a claim of a Cluster counts as left over")
		}
		s.loses(Claims, "claim")
		if open := s.witness.Unsettled(); !slices.ContainsFunc(open, func(what string) bool { return strings.Contains(what, "no claim holds 10.0.0.7/32") }) {
			t.Errorf("a lost claim is not noticed: %q", open)
		}
	})
	scene(t, "that follow it when it is moved, and may have lost their blocks", func(s *story) {
		waits := func(reason string) {
			s.stores(Claims, "claim", "c", fmt.Sprintf(`"metadata":{"namespace":"team","name":"claim","uid":"c","annotations":{%q:"prod/pods/0"}},`+
				`"spec":{"cidr":"10.4.0.0/24"},"status":{"conditions":[{"type":"Ready","reason":%q}]}`, networkAnnotation, reason))
		}
		isLost := func() bool {
			return slices.ContainsFunc(s.witness.Unsettled(), func(what string) bool { return strings.Contains(what, "no claim holds 10.4.0.0/24") })
		}
		s.stores(Clusters, "prod", "k", fmt.Sprintf(`"metadata":{"namespace":"team","name":"prod","uid":"k","annotations":{%q:"yes",%q:"pods=10.4.0.0/24@shared"}}`, MovedAnnotation, filledAnnotation))
		s.finds()
		if waits("Conflict"); !isLost() {
			t.Error("a conflict about a free block is not noticed")
		}
		s.records("r", "rival", "r", "10.4.0.0/25")
		if isLost() {
			t.Error("a conflict that is reported counts as wrong")
		}
		if waits("NoPool"); !isLost() {
			t.Error("a lost block that is not reported is not noticed")
		}
	})
	scene(t, "of its own", func(s *story) {
		s.networkClaim("other", "10.4.0.0/24")
		s.cluster("prod", "pods=10.4.0.0/24@shared")
		s.finds("no claim of it holds 10.4.0.0/24")
	})
	scene(t, "each", func(s *story) {
		s.networkClaim("prod", "10.4.0.0/24")
		s.cluster("prod", "pods=10.4.0.0/24@shared,services=10.5.0.0/24@shared")
		s.finds("no claim of it holds 10.5.0.0/24")
	})
}
