package ui

import (
	"io/fs"
	"mime"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cadastre-dev/cadastre/web"
)

func TestFileTypesIgnoreSystemSettings(t *testing.T) {
	if err := mime.AddExtensionType(".js", "text/plain"); err != nil { // as some systems do
		t.Fatal(err)
	}
	files := fstest.MapFS{}
	for _, name := range []string{"page/index.html", "page/page.js", "map/index.js", "page/style.css", "page/a.svg", "page/b.unknown"} {
		files[name] = &fstest.MapFile{Data: []byte(name)}
	}
	for path, want := range map[string]string{
		"/":                "text/html; charset=utf-8",
		"/index.html":      "text/html; charset=utf-8",
		"/page.js":         "text/javascript; charset=utf-8",
		"/map/index.js":    "text/javascript; charset=utf-8",
		"/style.css":       "text/css; charset=utf-8",
		"/a.svg":           "image/svg+xml",
		"/b.unknown":       "application/octet-stream",
		"/map":             "",
		"/map/":            "",
		"/none.js":         "",
		"/../server.go":    "",
		"//etc/passwd":     "",
		"/map/../page.js":  "",
		"/./index.html":    "",
		"/map%2findex.txt": "",
	} {
		answered := httptest.NewRecorder()
		(&page{files}).ServeHTTP(answered, httptest.NewRequest(http.MethodGet, path, nil))
		if got := answered.Header().Get("Content-Type"); want != "" && (answered.Code != http.StatusOK || got != want) {
			t.Errorf("%s: %d, %s; want %s", path, answered.Code, got, want)
		}
		if want == "" && answered.Code != http.StatusNotFound {
			t.Errorf("%s: %d, want %d", path, answered.Code, http.StatusNotFound)
		}
	}
	answered := httptest.NewRecorder()
	(&page{files}).ServeHTTP(answered, httptest.NewRequest(http.MethodPost, "/", nil))
	if answered.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST /: %d, want %d", answered.Code, http.StatusMethodNotAllowed)
	}
}

// TestEveryFileIsServed requests every embedded file.
func TestEveryFileIsServed(t *testing.T) {
	files, count := &page{web.Files}, 0
	err := fs.WalkDir(web.Files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		count++
		answered := httptest.NewRecorder()
		files.ServeHTTP(answered, httptest.NewRequest(http.MethodGet, "/"+strings.TrimPrefix(name, "page/"), nil))
		if kind := answered.Header().Get("Content-Type"); answered.Code != http.StatusOK || strings.HasPrefix(kind, "application/octet-stream") {
			t.Errorf("%s: %d, %s: give %s a type", name, answered.Code, kind, path.Ext(name))
		}
		return nil
	})
	if err != nil || count == 0 {
		t.Errorf("%d files, %v", count, err)
	}
}
