package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// Read calls take for each entry of a history file, or of a log in JSON, in the order of the
// lines. It skips lines that are not entries; unreadable is the number of lines that are not even
// JSON, such as a line that a crash cut off. An error of the reader or of take ends Read, which
// returns it.
func Read(from io.Reader, take func(Entry) error) (unreadable int, err error) {
	lines := bufio.NewReaderSize(from, 64<<10)
	for {
		line, end := lines.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			e := Entry{}
			switch err := json.Unmarshal(line, &e); {
			case err != nil && !json.Valid(line):
				unreadable++
			case err != nil || e.Action == "" || e.Time.IsZero(): // another JSON line
			default:
				if err := take(e); err != nil {
					return unreadable, err
				}
			}
		}
		switch {
		case errors.Is(end, io.EOF):
			return unreadable, nil
		case end != nil:
			return unreadable, end
		}
	}
}
