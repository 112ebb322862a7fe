package inventory

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// TestClusterPoolFollowsCluster creates, pauses, resumes and deletes the Cluster of a namespace's
// own pool.
func TestClusterPoolFollowsCluster(t *testing.T) {
	c := New(Options{Ledger: emptyLedger()})
	labels := map[string]string{v1alpha1.LabelCluster: "prod"}
	own := ipam.Pool{Key: ipam.LocalPoolNamed("red", "own"), Labels: labels, Classes: []string{"gold"}}
	pools := map[string]ipam.Pool{
		"own":                 own,
		"of another Cluster":  {Key: ipam.LocalPoolNamed("red", "other"), Labels: map[string]string{v1alpha1.LabelCluster: "test"}},
		"of no Cluster":       {Key: ipam.LocalPoolNamed("red", "none")},
		"of another's prod":   {Key: ipam.LocalPoolNamed("blue", "own"), Labels: labels},
		"of the whole system": {Key: ipam.PoolNamed("own"), Labels: labels},
	}
	for _, pool := range pools {
		c.SetPool(pool)
	}
	var changes []Change
	c.Listen(func(e Change) { changes = append(changes, e) })
	prod := ipam.Name{Namespace: "red", Name: "prod"}
	const (
		paused = "the Cluster prod to which it belongs is paused: set its spec.paused to false, or use another pool"
		none   = "there is no Cluster prod, to which it belongs: create it, or take the label " + v1alpha1.LabelCluster + " off"
	)
	for _, step := range []struct {
		what     string
		do       func()
		why      string
		changes  int
		unpaused bool
	}{
		{"Clusters are not watched", func() {}, "", 0, false},
		{"they are known from now on", c.TrackClusters, none, 0, false},
		{"it comes", func() { c.SetCluster(prod, false) }, "", 1, true},
		{"it is seen again", func() { c.SetCluster(prod, false) }, "", 0, false},
		{"they are known, again", c.TrackClusters, "", 0, false},
		{"it is paused", func() { c.SetCluster(prod, true) }, paused, 1, false},
		{"it is seen again, paused", func() { c.SetCluster(prod, true) }, paused, 0, false},
		{"it goes on", func() { c.SetCluster(prod, false) }, "", 1, true},
		{"it goes", func() { c.DropCluster(prod) }, none, 1, true},
		{"it goes again", func() { c.DropCluster(prod) }, none, 0, false},
		{"it comes paused", func() { c.SetCluster(prod, true) }, paused, 1, false},
	} {
		changes = nil
		step.do()
		if got := c.clusterPauses(own); got != step.why {
			t.Errorf("%s: it hands out nothing as %q, want %q", step.what, got, step.why)
		}
		if len(changes) != step.changes {
			t.Errorf("%s: %d changes, want %d: %+v", step.what, len(changes), step.changes, changes)
			continue
		}
		if step.changes > 0 && (changes[0].Pool != own.Key || changes[0].Unpaused != step.unpaused || fmt.Sprint(changes[0].Classes, changes[0].Labels) != fmt.Sprint(own.Classes, labels)) {
			t.Errorf("%s: got %+v, want the change of %s, unpaused: %t", step.what, changes[0], own.Key, step.unpaused)
		}
	}
	for what, want := range map[string]string{
		"of another Cluster": "there is no Cluster test", "of another's prod": "there is no Cluster prod", "of no Cluster": "", "of the whole system": "",
	} {
		if got := c.clusterPauses(pools[what]); want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
}
