package suite

import (
	"context"
	"os"
	"slices"
	"strings"

	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
)

// Leader waits until a replica leads, and returns it.
func (w *World) Leader() *cluster.Manager {
	w.Helper()
	var leader *cluster.Manager
	w.Await("a replica leads", func(context.Context) bool {
		i := slices.IndexFunc(w.Managers, func(m *cluster.Manager) bool { return m.Running() && w.leads(m) })
		if i >= 0 {
			leader = w.Managers[i]
		}
		return i >= 0
	})
	return leader
}

// leads reports whether a replica leads, by its log since it was last started: there the
// controller of claims, which only the leader runs, has begun, and has not ended since.
func (w *World) leads(m *cluster.Manager) bool {
	log, err := os.ReadFile(m.LogPath())
	Must(w, err)
	life := string(log)
	if i := strings.LastIndex(life, "\n--- "); i >= 0 {
		life = life[i:]
	}
	runs := false
	for line := range strings.Lines(life) {
		if strings.Contains(line, `controller="ipclaim"`) {
			runs = runs && !strings.Contains(line, "All workers finished") || strings.Contains(line, "Starting workers")
		}
	}
	return runs
}
