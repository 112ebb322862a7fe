package ui

import (
	"io/fs"
	"net/http"
	"path"
	"strings"
)

// page serves the files of the page, and the modules of the map in map/. They are the same for all
// users.
type page struct{ files fs.FS }

// contentType returns the content type of a file, independent of the tables of the system.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js", ".mjs":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".json", ".map":
		return "application/json"
	case ".webmanifest":
		return "application/manifest+json"
	case ".svg":
		return "image/svg+xml"
	case ".png":
		return "image/png"
	case ".ico":
		return "image/x-icon"
	case ".txt", ".md":
		return "text/plain; charset=utf-8"
	default:
		return "application/octet-stream"
	}
}

// ServeHTTP implements http.Handler.
func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		answer(w, http.StatusMethodNotAllowed, &Failure{Message: r.Method + " is not for files of the page: GET them", ExitCode: exitUsage})
		return
	}
	name := strings.TrimPrefix(r.URL.Path, "/")
	if name == "" {
		name = "index.html"
	}
	if !strings.HasPrefix(name, "map/") {
		name = "page/" + name
	}
	content, err := fs.ReadFile(p.files, name) // no name of an fs.FS leads out of it
	if err != nil {
		answer(w, http.StatusNotFound, &Failure{Message: "there is no file of that name", ExitCode: exitNotFound})
		return
	}
	w.Header().Set("Content-Type", contentType(name))
	_, _ = w.Write(content) //nolint:gosec // a file of ours, and an error means that the client is gone
}
