// Package version returns the version of Cadastre that a program is.
package version

import (
	"cmp"
	"runtime/debug"
)

// stamped is the version that the linker writes if a program is built without the history of
// its source, as in a container:
//
//	go build -ldflags "-X github.com/cadastre-dev/cadastre/internal/version.stamped=v0.1.0"
var stamped string //nolint:gochecknoglobals // only the linker writes it

// Unknown is the version of a program that was not built from a known one.
const Unknown = "(devel)"

// Own returns the version of this program.
func Own() string {
	info, _ := debug.ReadBuildInfo()
	return versionOf(stamped, info)
}

func versionOf(stamped string, info *debug.BuildInfo) string {
	if info == nil {
		return cmp.Or(stamped, Unknown)
	}
	return cmp.Or(stamped, info.Main.Version, Unknown)
}
