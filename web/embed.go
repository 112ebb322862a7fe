// Package web holds the files of the browser view.
package web

import "embed"

// Files holds the page in page and the modules of the map in map: every file there, except those
// whose names begin with a dot or an underscore.
//
//go:embed page map
var Files embed.FS
