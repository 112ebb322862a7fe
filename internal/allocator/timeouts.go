package allocator

import "time"

// The longest that the steps of a request take. At admission the deadline of the request
// (webhooks.Graceful) ends whatever would exceed it.
const (
	// confirmWithin bounds the whole way from finding to confirming.
	confirmWithin = 3500 * time.Millisecond
	// beginWithin bounds the wait until the API server may be asked: what is left
	// must do for record and confirmation.
	beginWithin = 1500 * time.Millisecond
	// releaseWithin bounds the wait for a release that is on its way.
	releaseWithin = 250 * time.Millisecond
	// discardWithin bounds giving up a record; what is not done by then is left
	// to the collection of orphans.
	discardWithin = 30 * time.Second
)
