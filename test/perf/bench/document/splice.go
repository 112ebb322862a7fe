package document

import (
	"fmt"
	"os"
	"strings"
)

// Splice puts a part between its markers in a document, and leaves the rest as it
// is. The markers of a part are comments that Markdown does not show.
func Splice(text, part, content string) (string, error) {
	begin, end := "<!-- begin "+part+" -->\n", "<!-- end "+part+" -->\n"
	before, rest, ok := strings.Cut(text, begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return "", fmt.Errorf("the document has no %q and %q", strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return before + begin + content + end + after, nil
}

// SpliceFile does the same in a file.
func SpliceFile(path, part, content string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	spliced, err := Splice(string(text), part, content)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, []byte(spliced), 0o644)
}
