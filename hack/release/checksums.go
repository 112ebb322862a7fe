package release

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// checksums is the file with the checksums of all other files of a release, as sha256sum writes
// them.
const checksums = "checksums.txt"

// WriteChecksums writes the checksums of all files in a directory.
func WriteChecksums(dir string) error {
	entries, err := os.ReadDir(dir) // in the order of names
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, entry := range entries {
		if entry.Name() == checksums {
			continue
		}
		sum, err := checksum(filepath.Join(dir, entry.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%s  %s\n", sum, entry.Name())
	}
	return os.WriteFile(filepath.Join(dir, checksums), []byte(text.String()), 0o644)
}

func checksum(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:]), nil
}
