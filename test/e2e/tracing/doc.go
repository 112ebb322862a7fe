// Package tracing tests that one trace leads from a client through the API server and a webhook to
// the IPAllocation and etcd, with real spans of all of them; and that traces delay no request when
// their collector is slow or gone.
package tracing
