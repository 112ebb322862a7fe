package torture

import (
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// failpoint represents a promise of the operator that a build breaks: its code is changed on the
// way to the compiler, and nowhere else.
type failpoint struct {
	name  string
	edits []edit
}

// edit replaces a text that a file of the module has exactly once.
type edit struct{ file, old, new string }

// failpoints returns the promises, in the order in which they are broken.
func failpoints() []failpoint {
	const ledger, release, secure = "internal/ledger/", "internal/allocator/release.go", "internal/controller/ippool/secure.go"
	return []failpoint{
		// A block is handed out even if others overlap it.
		{"skip-confirm", []edit{
			{ledger + "hold.go", "\th.removeHold()\n\tif h.seenUID != uid {", "\th.removeHold()\n\tif true {\n\t\treturn nil\n\t}\n\tif h.seenUID != uid {"},
		}},
		// A record is deleted without naming which one of that name is meant, nor in which state.
		{"release-by-name", []edit{
			{release, "client.Preconditions{UID: new(types.UID(record.UID)), ResourceVersion: &record.Version}", "client.Preconditions{}"},
			{
				release, "\tfinalizerPath := \"/metadata/finalizers/0\"\n",
				"\tfinalizerPath := \"/metadata/finalizers/0\"\n\tif true {\n" +
					"\t\tnone := client.RawPatch(types.MergePatchType, []byte(`{\"metadata\":{\"finalizers\":null}}`))\n" +
					"\t\treturn a.Client.Patch(ctx, convert.Allocation(record), none)\n\t}\n",
			},
		}},
		// Answers are given from a view before its first list, and the acknowledgement of a
		// record is taken for its confirmation.
		{"answer-unsynced", []edit{
			{ledger + "ledger.go", "type Ledger struct {", "type Ledger struct {\n\tunlisted bool"},
			{ledger + "ledger.go", "\treturn &Ledger{", "\treturn &Ledger{\n\t\tsynced: true, unlisted: true,"},
			{ledger + "feed.go", "l.synced = true", "l.synced, l.unlisted = true, false"},
			{
				ledger + "look.go", "\tvar state PoolState\n",
				"\tif l.unlisted {\n\t\treturn PoolState{Record: ipam.Record{UID: \"not seen\"}, Recorded: true, Open: true}\n\t}\n\tvar state PoolState\n",
			},
			{ledger + "own.go", "\tfor range l.openRecords(pool.Key, &pool) {\n\t\treturn true\n\t}\n\treturn false", "\tfor range l.openRecords(pool.Key, &pool) {\n\t\treturn true\n\t}\n\treturn l.unlisted"},
			{
				ledger + "hold.go", "\tacknowledgedAt := h.markAcknowledged()\n",
				"\th.ledger.mu.Lock()\n\tunlisted := h.ledger.unlisted\n\th.ledger.mu.Unlock()\n\tif unlisted {\n\t\th.Drop()\n\t\treturn nil\n\t}\n" +
					"\tacknowledgedAt := h.markAcknowledged()\n",
			},
		}},
		// Blocks are handed out of a pool whose own record is gone, and such a record is
		// released at once.
		{"skip-pool-check", []edit{
			{ledger + "own.go", "if !e.pool().Kind.IsPool() {", "if true {"},
			{ledger + "own.go", "\tfor range l.openRecords(pool.Key, &pool) {\n\t\treturn true\n\t}\n\treturn false", "\treturn true"},
			{release, "if record.Purpose == ipam.PurposePool {", "if false {"},
			{secure, "if own.UID == \"\" {\n\t\t\tcontinue", "if true {\n\t\t\tcontinue"},
		}},
		// What a pool held before an edit of its ranges is released before what it holds by the edit is
		// recorded, with its blocks in it.
		{"release-before-record", []edit{
			{secure, "err := c.takeOverFormer(ctx, s)", "err := cmp.Or(c.releaseFormer(ctx, s, c.Allocator.ReleaseFormer), c.takeOverFormer(ctx, s))"},
			{ledger + "own.go", "case poolStays && !isReplaced:\n\t\treturn true", "case poolStays, isReplaced && poolStays:\n\t\treturn false"},
		}},
	}
}

// build compiles a manager with the failpoint, and returns its path.
func (f failpoint) build(t *testing.T, root string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "manager")
	f.compile(t, root, "-o", binary, "./test/framework/manager")
	return binary
}

// compile runs go build with the failpoint. The files of the module stay as they are: the
// compiler reads others in their place.
func (f failpoint) compile(t *testing.T, root string, args ...string) {
	t.Helper()
	content, err := json.Marshal(map[string]any{"Replace": f.changed(t, root)})
	suite.Must(t, err)
	overlay := filepath.Join(t.TempDir(), "overlay.json")
	suite.Must(t, os.WriteFile(overlay, content, 0o600))
	build := exec.CommandContext(t.Context(), "go", append([]string{"build", "-overlay", overlay}, args...)...)
	build.Dir = root
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building with the failpoint %s: %v: %s", f.name, err, said)
	}
}

// changed writes the files that the failpoint changes, and returns their paths by those in the
// module.
func (f failpoint) changed(t *testing.T, root string) map[string]string {
	t.Helper()
	dir, changed := t.TempDir(), map[string]string{}
	for _, e := range f.edits {
		path := filepath.Join(root, e.file)
		code, err := os.ReadFile(cmp.Or(changed[path], path))
		suite.Must(t, err)
		if n := strings.Count(string(code), e.old); n != 1 {
			t.Fatalf("%s: %s has %d times %q, want once", f.name, e.file, n, e.old)
		}
		changed[path] = filepath.Join(dir, strings.ReplaceAll(e.file, "/", "_"))
		suite.Must(t, os.WriteFile(changed[path], []byte(strings.Replace(string(code), e.old, e.new, 1)), 0o600))
	}
	return changed
}

// TestEveryFailpointCompiles compiles each package that a failpoint changes, so that one that the code
// has outgrown is noticed at once. At full size it also compiles them together.
func TestEveryFailpointCompiles(t *testing.T) {
	root := suite.ModuleRoot(t)
	for _, f := range failpoints() {
		t.Run(f.name, func(t *testing.T) {
			inPackage := map[string][]edit{}
			for _, e := range f.edits {
				dir := filepath.Dir(e.file)
				inPackage[dir] = append(inPackage[dir], e)
			}
			for dir, edits := range inPackage {
				failpoint{f.name, edits}.compile(t, root, "./"+dir)
			}
			if !testing.Short() {
				f.compile(t, root, "./internal/controller/ippool")
			}
		})
	}
}
