package version

import (
	"runtime/debug"
	"testing"
)

func TestStampedVersionPrecedesBuildInfo(t *testing.T) {
	built := func(version string) *debug.BuildInfo { return &debug.BuildInfo{Main: debug.Module{Version: version}} }
	for name, c := range map[string]struct {
		stamped string
		info    *debug.BuildInfo
		want    string
	}{
		"the stamp comes first":  {"v1.2.3", built("v1.0.0"), "v1.2.3"},
		"then that of the build": {"", built("v1.0.0"), "v1.0.0"},
		"a build of no version":  {"", built(""), Unknown},
		"no build information":   {"", nil, Unknown},
	} {
		if got := versionOf(c.stamped, c.info); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
