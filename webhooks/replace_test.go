package webhooks

import (
	"encoding/json"
	"maps"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestManifestReplacesPool sends pools again as they were before the operator filled its
// fields in.
func TestManifestReplacesPool(t *testing.T) {
	type object = map[string]any
	filledIn := object{"cidr": "10.9.0.0/24", "ipFamily": "IPv4", "routingDomain": "default"}
	for name, tc := range map[string]struct{ sent, want object }{
		"a root":                    {object{"cidr": "10.9.0.0/24"}, filledIn},
		"a child":                   {object{"prefixLength": 24.0}, object{"cidr": "10.9.0.0/24", "ipFamily": "IPv4", "routingDomain": "default", "prefixLength": 24.0}},
		"one with another field":    {object{"project": "x"}, object{"cidr": "10.9.0.0/24", "ipFamily": "IPv4", "routingDomain": "default", "project": "x"}},
		"one that changes the CIDR": {object{"cidr": "10.8.0.0/24"}, object{"cidr": "10.8.0.0/24", "ipFamily": "IPv4", "routingDomain": "default"}},
		"one as it is stored":       {maps.Clone(filledIn), filledIn},
	} {
		before, err := json.Marshal(object{"spec": filledIn})
		must(t, err)
		sent, err := json.Marshal(object{"spec": tc.sent})
		must(t, err)
		for _, kind := range []string{"IPPool", "LocalIPPool"} {
			req := review(kind, string(sent), string(before), updating)
			response := (&poolMutator{}).Handle(t.Context(), req)
			if !response.Allowed {
				t.Fatalf("%s: %v", name, response.Result)
			}
			got := object{}
			must(t, json.Unmarshal(applyAnswer(t, req, &response), &got))
			if diff := cmp.Diff(object{"spec": tc.want}, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	}
	if response := (&poolMutator{}).Handle(t.Context(), review("IPPool", `{}`, `[]`, updating)); response.Allowed || response.Result.Code != http.StatusBadRequest {
		t.Errorf("an old object that is none: %v", response.Result)
	}
}
