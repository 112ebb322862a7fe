// Package web holds the files of the browser view.
package web

import "embed"

// Files has the page in page and the modules of the map in map: every file that is there, but
// for those whose names begin with a dot or an underscore.
//
//go:embed page map
var Files embed.FS
