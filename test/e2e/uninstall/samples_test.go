package uninstall

import (
	"path/filepath"
	"testing"
)

// kinds lists all kinds that the samples have.
const kinds = "ipclaims,ipclasses,ippools,localippools,ipallocations"

func TestTheSamplesAreDeletedAsTheyWereApplied(t *testing.T) {
	w, root := start(t)
	samples := filepath.Join(root, "config/samples")
	w.kubectl("apply", "--server-side", "-k", samples)
	w.kubectl("wait", "--for=condition=Ready", "ipclaims", "--all", "-A", "--timeout=30s")

	w.kubectl("delete", "--timeout=60s", "-k", samples)
	w.kubectl("wait", "--for=delete", "ipallocations", "--all", "-A", "--timeout=30s")
	if left := w.kubectl("get", kinds, "-A", "-o", "name"); left != "" {
		t.Errorf("left over:\n%s", left)
	}
}
