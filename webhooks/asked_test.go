package webhooks

import (
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/utils/clock"

	"github.com/cadastre-dev/cadastre/internal/requester"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
)

// TestWhereWhoAskedCannotBeNotedAWarningSaysSo covers a user of too many groups, and an operator
// that has no key yet.
func TestWhereWhoAskedCannotBeNotedAWarningSaysSo(t *testing.T) {
	s := newStage(t)
	ready, empty := requester.NewRing(s.store, s.store, "system", clock.RealClock{}), requester.NewRing(s.store, s.store, "other", clock.RealClock{})
	must(t, ready.Load(t.Context()))
	var rows []messages.Row
	for user, ring := range map[string]*requester.Ring{"of-many-groups": ready, "of-one-group": empty} {
		info := authenticationv1.UserInfo{Username: user, Groups: []string{"group"}}
		if ring == ready {
			info.Groups = []string{strings.Repeat("g", 1<<17)}
		}
		d, err := newDraft([]byte(`{"metadata":{"name":"c"}}`))
		must(t, err)
		warnings := d.askedBy(ring, info, requester.Subject{Kind: "IPClaim", Namespace: "team", Name: "c", Pool: "owned"})
		if len(warnings) != 1 {
			t.Fatalf("%s is warned: %q", user, warnings)
		}
		rows = append(rows, messages.Row{Object: "IPClaim", On: "create", Answer: "warning", Value: "owned", Message: warnings[0]})
	}
	messages.Golden(t, rows)
}
