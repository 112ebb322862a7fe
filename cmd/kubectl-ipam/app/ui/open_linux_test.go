package ui

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const tokenAddress = "http://127.0.0.1:1234/#token=s3cr3t"

func TestTokenFileIsPrivateUntilRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	file, remove, err := redirection(tokenAddress)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(page), `url=`+tokenAddress+`"`) {
		t.Errorf("%s, %v", page, err)
	}
	for path, want := range map[string]fs.FileMode{file: 0o600, filepath.Dir(file): 0o700 | fs.ModeDir} {
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want mode %v", path, info.Mode(), err, want)
		}
	}
	remove()
	if _, err := os.Stat(filepath.Dir(file)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is left: %v", err)
	}
}

func TestCommandLineOmitsToken(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "told")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\necho \"$@\" >" + fifo + "\n"
	if err := os.WriteFile(filepath.Join(dir, "xdg-open"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("TMPDIR", dir)
	remove, err := browse(t.Context(), tokenAddress)
	defer remove()
	if err != nil {
		t.Fatal(err)
	}
	line, err := os.ReadFile(fifo) // waits for the program
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(line), "s3cr3t") || !strings.HasSuffix(strings.TrimSpace(string(line)), "open.html") {
		t.Errorf("the browser is opened with %q", line)
	}
}
