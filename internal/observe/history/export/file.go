package export

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"

	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/cadastre-dev/cadastre/internal/observe/history"
)

// FileOptions holds the path of a history file and the limits of its rotation, like
// kube-apiserver's --audit-log-*.
type FileOptions struct {
	// Path is the path of the file. Rotated files are beside it, with the time in their names.
	Path string
	// MaxSize is the size at which the file is rotated, in megabytes.
	MaxSize int
	// MaxBackups is the number of rotated files that are kept, and MaxAge the number of days;
	// 0 means any number.
	MaxBackups, MaxAge int
}

// File returns a sink that writes each entry as one line of JSON. It returns an error if the
// file cannot be written. Only one process can write the file.
func File(o FileOptions) (history.Sink, error) {
	file, err := os.OpenFile(o.Path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	if err := file.Close(); err != nil {
		return nil, err
	}
	return &fileSink{logger: &lumberjack.Logger{Filename: o.Path, MaxSize: o.MaxSize, MaxBackups: o.MaxBackups, MaxAge: o.MaxAge}}, nil
}

type fileSink struct {
	logger *lumberjack.Logger
	lines  bytes.Buffer
}

// Write implements history.Sink.
func (s *fileSink) Write(_ context.Context, entries []history.Entry) error {
	s.lines.Reset()
	encoder := json.NewEncoder(&s.lines)
	encoder.SetEscapeHTML(false)
	for i := range entries {
		if err := encoder.Encode(&entries[i]); err != nil {
			return fmt.Errorf("encoding an entry of the history: %w", err)
		}
	}
	_, err := s.logger.Write(s.lines.Bytes())
	return err
}

// Close implements history.Sink.
func (s *fileSink) Close(context.Context) error { return s.logger.Close() }
