package ui

import (
	"context"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// browse opens an address in the browser of the caller. All users of a machine can read the
// command lines of its programs, and the address has a token, so the browser gets a file that
// leads to the address and that the caller alone can read; remove deletes it.
func browse(ctx context.Context, address string) (remove func(), err error) {
	file, remove, err := redirection(address)
	if err != nil {
		return remove, err
	}
	line := []string{"xdg-open", file}
	switch runtime.GOOS {
	case "darwin":
		line[0] = "open"
	case "windows":
		line = []string{"rundll32", "url.dll,FileProtocolHandler", file}
	}
	opening := exec.CommandContext(ctx, line[0], line[1:]...) //nolint:gosec // the file is our own
	if err := opening.Start(); err != nil {
		return remove, err
	}
	go func() { _ = opening.Wait() }() // a browser that it has started can stay
	return remove, nil
}

// redirection writes a page that leads to an address, into a new directory.
func redirection(address string) (file string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "kubectl-ipam-ui-") // of mode 0700
	if err != nil {
		return "", func() {}, err
	}
	remove = func() { _ = os.RemoveAll(dir) } // the token is worthless at that time
	file = filepath.Join(dir, "open.html")
	page := fmt.Sprintf("<!doctype html><meta charset=utf-8><title>kubectl ipam ui</title><meta http-equiv=refresh content=\"0; url=%s\">\n", html.EscapeString(address))
	return file, remove, os.WriteFile(file, []byte(page), 0o600)
}
