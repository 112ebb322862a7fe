// Package security checks the documented rights of the operator and of tenants.
package security

import (
	"fmt"
	"testing"

	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// world holds a cluster with a client, for one test.
type world struct{ *suite.World }

func TestSecurity(t *testing.T) {
	w := suite.Start(t, cluster.Options{
		Managers: 2, ControllerManager: true, Audit: true,
		ManagerArgs: []string{"--orphan-grace=2s", fmt.Sprint("--unclaimed-limit=", unclaimedLimit)}, APIServerFlags: map[string]string{"enable-admission-plugins": "OwnerReferencesPermissionEnforcement"},
	})
	for _, step := range []struct {
		name string
		do   func(*world)
	}{
		{"metrics and profiles are for users that may get them", (*world).diagnosticsAreGuarded},
		{"an answer is the same for taken and for forbidden blocks", (*world).answersAreAlike},
		{"a request of any size is answered", (*world).sizeIsBounded},
		{"a request that does not end is answered", (*world).timeIsBounded},
		{"a namespace whose claims are never stored is stopped, and no other", (*world).unboundIsBounded},
		{"webhooks answer no path without the secret", (*world).onlyTheSecretIsAnswered},
		{"a path that was replaced is answered for a minute, and no create fails in that time", (*world).pathsAreReplaced},
		{"manifests that others apply change neither path nor bundle", (*world).manifestsLeavePathsAlone},
		{"everything that the operator does", (*world).everythingIsDone},
		{"a right that comes late counts for service accounts, and no edit grants it", (*world).aLateRightCounts},
		{"an object can be edited and deleted, whatever its spec", (*world).everythingIsEditable},
		{"the operator uses the rights that it has, and has those that it uses", (*world).rightsAreUsed},
	} {
		t.Run(step.name, func(t *testing.T) { step.do(&world{w.For(t)}) })
	}
}
