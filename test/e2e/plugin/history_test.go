package plugin

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// history asks for the former holders of blocks, from the file that the operator writes.
func (w *world) history(t *testing.T) {
	w = &world{World: w.For(t), historyFile: w.historyFile}
	w.Pools(build.Pool("archive").CIDR("203.0.113.64/28").Domain("yard").Obj())
	first := build.Claim("team-b", "archived").Pool("archive").CIDR("203.0.113.64/30").Obj()
	w.Created(first)
	err := w.Create(t.Context(), build.Claim("team-a", "late").Pool("archive").CIDR("203.0.113.65/32").Obj())
	if !apierrors.IsConflict(err) {
		t.Fatalf("asking for a block that is held: %v, want a conflict", err)
	}
	w.Deleted(first)
	w.Await("the release is in the history", func(context.Context) bool {
		return strings.Contains(w.historyText(t), `"action":"Released","reason":"HolderDeleted","block":"203.0.113.64/30"`)
	})
	w.Created(build.Claim("team-a", "late").Pool("archive").CIDR("203.0.113.65/32").Obj())
	w.Await("the next grant is in the history", func(context.Context) bool {
		return strings.Contains(w.historyText(t), `"block":"203.0.113.65/32","poolKind":"IPPool","pool":"archive"`)
	})

	admin := w.as(t, "")
	suite.Must(t, os.WriteFile(filepath.Join(admin.dir, "history.jsonl"), []byte(w.historyText(t)), 0o600))
	suite.Must(t, os.WriteFile(filepath.Join(admin.dir, "notes.txt"), []byte("nothing of it\n"), 0o600))
	admin.runs("kubectl ipam who 203.0.113.65 --since 1h --history-file $DIR/history.jsonl").says("archived").says("Conflict")
	admin.runs("kubectl ipam who 203.0.113.67 --since 1h --history-file $DIR/history.jsonl")
	admin.runs("kubectl ipam who 203.0.113.64/28 --history-file $DIR/history.jsonl -o jsonpath={.history.entries[*].reason}")
	admin.runs("kubectl ipam who 203.0.113.65 --since 2099-12-31 --history-file $DIR/history.jsonl").says("says nothing of it")
	admin.runs("kubectl ipam who 203.0.113.65 --since 1h").ends(command.ExitUsage).says("--history-file")
	admin.runs("kubectl ipam who 203.0.113.65 --since yesterday --history-file $DIR/history.jsonl").ends(command.ExitUsage).says("24h")
	admin.runs("kubectl ipam who 203.0.113.65 --history-file $DIR/notes.txt").ends(command.ExitUsage).says("is no history")
	admin.runs("kubectl ipam who 203.0.113.65 --history-file $DIR/none").ends(command.ExitNotFound)
	admin.matches("who-history")
}

func (w *world) historyText(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(w.historyFile)
	suite.Must(t, err)
	return string(text)
}
