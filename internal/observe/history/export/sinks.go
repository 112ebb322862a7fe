// Package export provides the sinks of the history: the log, a file and an OTLP endpoint.
package export

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/cadastre-dev/cadastre/internal/observe/history"
	"github.com/cadastre-dev/cadastre/internal/version"
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

const (
	// scope names the history among the logs of a collector.
	scope = "github.com/cadastre-dev/cadastre/history"
	// exportWithin bounds one call, retries included.
	exportWithin = 10 * time.Second
)

// OTLP returns a sink that sends entries as log records of OpenTelemetry, by gRPC, to the
// endpoint, such as http://collector:4317, or https:// for TLS. The environment variables
// OTEL_EXPORTER_OTLP_* hold the other settings, such as headers and certificates. Entries
// that the endpoint does not take in time are lost.
func OTLP(ctx context.Context, endpoint, replica string) (history.Sink, error) {
	if at, err := url.Parse(endpoint); err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https" {
		return nil, fmt.Errorf("%q is no URL of an endpoint: write one such as http://collector:4317", endpoint)
	}
	exporter, err := otlploggrpc.New(ctx,
		otlploggrpc.WithEndpointURL(endpoint), otlploggrpc.WithTimeout(exportWithin),
		otlploggrpc.WithRetry(otlploggrpc.RetryConfig{
			Enabled: true, InitialInterval: time.Second, MaxInterval: 5 * time.Second, MaxElapsedTime: exportWithin,
		}))
	if err != nil {
		return nil, err
	}
	s := &otlpSink{exporter: exporter, fields: history.Fields()}
	s.provider = sdklog.NewLoggerProvider(sdklog.WithProcessor((*collected)(s)), sdklog.WithResource(resource.NewSchemaless(
		semconv.ServiceName("cadastre"), semconv.ServiceVersion(version.Own()), semconv.ServiceInstanceID(replica),
	)))
	s.logger = s.provider.Logger(scope)
	return s, nil
}

// otlpSink makes records by the SDK's provider, collects them by its own processor, and exports
// them itself: so it knows whether they were taken.
type otlpSink struct {
	exporter *otlploggrpc.Exporter
	provider *sdklog.LoggerProvider
	logger   log.Logger
	fields   []history.Field
	records  []sdklog.Record
}

// Write implements history.Sink.
func (s *otlpSink) Write(ctx context.Context, entries []history.Entry) error {
	s.records = s.records[:0]
	for i := range entries {
		s.logger.Emit(ctx, s.record(&entries[i]))
	}
	ctx, cancel := context.WithTimeout(ctx, exportWithin)
	defer cancel()
	return s.exporter.Export(ctx, s.records)
}

func (s *otlpSink) record(e *history.Entry) log.Record {
	r := log.Record{}
	r.SetTimestamp(e.Time)
	r.SetSeverity(log.SeverityInfo)
	r.SetEventName("cadastre." + strings.ToLower(string(e.Action)))
	r.SetBody(log.StringValue(subject(e)))
	for _, f := range s.fields[1:] { // without the time
		switch value := f.Value(e).(type) {
		case int64:
			r.AddAttributes(log.Int64(f.Name, value))
		case string:
			r.AddAttributes(log.String(f.Name, value))
		}
	}
	return r
}

// Close implements history.Sink.
func (s *otlpSink) Close(ctx context.Context) error {
	return errors.Join(s.provider.Shutdown(ctx), s.exporter.Shutdown(ctx))
}

// collected implements the processor that collects a sink's records.
type collected otlpSink

// OnEmit implements sdklog.Processor.
func (c *collected) OnEmit(_ context.Context, r *sdklog.Record) error {
	c.records = append(c.records, r.Clone())
	return nil
}

// Enabled implements sdklog.Processor.
func (*collected) Enabled(context.Context, sdklog.EnabledParameters) bool { return true }

// Shutdown implements sdklog.Processor.
func (*collected) Shutdown(context.Context) error { return nil }

// ForceFlush implements sdklog.Processor.
func (*collected) ForceFlush(context.Context) error { return nil }
