package tracing

import "go.opentelemetry.io/otel/attribute"

// These are the names of spans. The names of spans of admission and of controllers continue with
// their subject: NameOfAdmission, NameOfPass.
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

// NameOfAdmission returns the name of the span of an admission request.
func NameOfAdmission(operation, resource string) string {
	return Admission + " " + operation + " " + resource
}

// NameOfPass returns the name of the span of a pass of a controller.
func NameOfPass(controller string) string { return Reconcile + " " + controller }

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

// Attribute represents an attribute of spans, as docs/tracing.md lists it.
type Attribute struct {
	Key attribute.Key
	// Type is the type of its values.
	Type attribute.Type
	Help string
}

// Attributes returns all attributes, in the order of the documentation.
func Attributes() []Attribute {
	const text, number, seconds, yes = attribute.STRING, attribute.INT64, attribute.FLOAT64, attribute.BOOL
	return []Attribute{
		{Kind, text, "Kind of the object that a request, a pass or a block is for."},
		{Namespace, text, "Namespace of the object. Not set for one that has none."},
		{Name, text, "Name of the object. Not set where the API server is to generate it."},
		{Operation, text, "What the request does: CREATE, UPDATE or DELETE."},
		{UID, text, "UID of the admission request, which is in the log of the API server, too."},
		{DryRun, yes, "Whether the request is a dry run, for which nothing is recorded."},
		{Allowed, yes, "Whether the webhook allows the request."},
		{Code, number, "HTTP status code that the API server answers a refused request with. Not set for one that is allowed."},
		{Controller, text, "Name of the controller."},
		{RequeueAfter, seconds, "After how many seconds the object is reconciled again. Not set where it is not."},
		{Origin, text, "Where the request for a block comes from: admission, controller, or existing for a block that its holder has already."},
		{Class, text, "Class of the request. Not set without one."},
		{Family, text, "Address family of the block: IPv4 or IPv6."},
		{Length, number, "Prefix length of the block that is asked for."},
		{Candidates, number, "How many pools may serve the request."},
		{Attempts, number, "How many times a block was looked for: once for each pool that had none, and once for each block that was lost to another request. 0 where a block was recorded, or retained, for the holder already."},
		{Waited, seconds, "How many seconds before the allocation the holder was created. Not set where it is being created."},
		{Pool, text, "The pool, as messages name it, such as pool offices."},
		{Block, text, "The block, as a CIDR."},
		{AllocationName, text, "Namespace and name of the IPAllocation."},
		{Result, text, "What came of it. Of an allocation and its steps, as in the label result of the metric cadastre_allocations_total, and lost_race for a record that gives way to another one; of a pass: done, requeued or error."},
		{Reason, text, "Why it has no block, or was not confirmed. The request may be answered all the same, with another block or by waiting."},
		{ErrorType, text, "Kind of the error, where what the span is about has failed. Its status is then Error, with the message."},
	}
}

// Definition represents a kind of span, as docs/tracing.md lists it.
type Definition struct {
	// Name is the beginning of the names of its spans.
	Name string
	Help string
	// Attributes holds the attributes that its spans can have.
	Attributes []attribute.Key
}

// Definitions returns all kinds of spans, in the order of the documentation.
func Definitions() []Definition {
	return []Definition{
		{
			Admission, "A request to a webhook. The name goes on with the operation and the resource. Its parent is the API server's.",
			[]attribute.Key{Kind, Namespace, Name, Operation, UID, DryRun, Allowed, Code, Reason, ErrorType},
		},
		{
			Reconcile, "A pass of a controller. The name goes on with that of the controller.",
			[]attribute.Key{Controller, Namespace, Name, Result, RequeueAfter, ErrorType},
		},
		{
			Allocate, "An allocation, from the request to the block that is confirmed.",
			[]attribute.Key{Kind, Namespace, Name, Origin, Class, Family, Length, Candidates, Attempts, Waited, Pool, Block, AllocationName, Result, Reason, ErrorType},
		},
		{
			Find, "A free block is looked for in one pool, in memory. It waits only where the namespace has its share of unclaimed records.",
			[]attribute.Key{Pool, Block, Result, Reason, ErrorType},
		},
		{
			Await, "No pool has room, and a release may be on its way: at most 250 ms.",
			[]attribute.Key{Result},
		},
		{
			Record, "The IPAllocation is created.",
			[]attribute.Key{Pool, Block, AllocationName, Result, Reason, ErrorType},
		},
		{
			Confirm, "The replica waits until its own watch shows the IPAllocation, and nothing that overlaps it was first.",
			[]attribute.Key{Pool, Block, AllocationName, Result, Reason, ErrorType},
		},
		{
			Release, "An IPAllocation is deleted. One that was given up is deleted after its request was answered.",
			[]attribute.Key{Kind, Namespace, Name, Pool, Block, AllocationName, Result, Reason, ErrorType},
		},
	}
}
