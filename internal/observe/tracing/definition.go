// Package tracing defines the names of the operator's spans and of their attributes, which
// docs/tracing.md explains, and makes the spans of passes. It imports only the API of OpenTelemetry:
// a program that records spans makes a provider by package export.
//
// Spans can name claims, pools, blocks and users' objects. No span has a secret.
package tracing

import "go.opentelemetry.io/otel/attribute"

// These are the names of spans. The name of a span of admission continues with the operation and
// the resource, and that of a pass with the controller.
const (
	Admission = "admission"
	Reconcile = "reconcile"
	Allocate  = "allocate"
	Find      = "find"
	Await     = "await room"
	Record    = "record"
	Confirm   = "confirm"
	Release   = "release"
)

// These are the attributes of spans. Attributes without the prefix cadastre come from
// OpenTelemetry's semantic conventions.
const (
	ErrorType      attribute.Key = "error.type"
	Kind           attribute.Key = "cadastre.object.kind"
	Namespace      attribute.Key = "cadastre.object.namespace"
	Name           attribute.Key = "cadastre.object.name"
	Operation      attribute.Key = "cadastre.admission.operation"
	UID            attribute.Key = "cadastre.admission.uid"
	DryRun         attribute.Key = "cadastre.admission.dry_run"
	Allowed        attribute.Key = "cadastre.admission.allowed"
	Code           attribute.Key = "cadastre.admission.code"
	Controller     attribute.Key = "cadastre.controller"
	RequeueAfter   attribute.Key = "cadastre.requeue_after"
	Origin         attribute.Key = "cadastre.origin"
	Class          attribute.Key = "cadastre.class"
	Family         attribute.Key = "cadastre.ip_family"
	Length         attribute.Key = "cadastre.prefix_length"
	Candidates     attribute.Key = "cadastre.candidates"
	Attempts       attribute.Key = "cadastre.attempts"
	Waited         attribute.Key = "cadastre.waited"
	Pool           attribute.Key = "cadastre.pool"
	Block          attribute.Key = "cadastre.block"
	AllocationName attribute.Key = "cadastre.allocation"
	Result         attribute.Key = "cadastre.result"
	Reason         attribute.Key = "cadastre.reason"
)
