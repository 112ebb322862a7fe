// Package export provides the sinks of the history: the log, a file and an OTLP endpoint.
package export

import (
	"context"

	"github.com/go-logr/logr"

	"github.com/cadastre-dev/cadastre/internal/observe/history"
)

// Log returns a sink that writes each entry as one line of the log, with the names of the fields
// as keys.
func Log(logger logr.Logger) history.Sink { return logSink{logger, history.Fields()} }

type logSink struct {
	log    logr.Logger
	fields []history.Field
}

// Write implements history.Sink.
func (s logSink) Write(_ context.Context, entries []history.Entry) error {
	for i := range entries {
		e := &entries[i]
		var values []any
		for _, f := range s.fields {
			if value := f.Value(e); value != nil {
				values = append(values, f.Name, value)
			}
		}
		s.log.Info(subject(e), values...)
	}
	return nil
}

// Close implements history.Sink.
func (logSink) Close(context.Context) error { return nil }

// subject returns a phrase for the action of an entry.
func subject(e *history.Entry) string {
	switch e.Action {
	case history.Granted:
		return "Granted a block"
	case history.Retained:
		return "Kept a block"
	case history.Released:
		return "Released a block"
	default:
		return "Refused a request"
	}
}
