// Package docs runs the examples of the documents: the commands of each page in their order, and
// the YAML between them, with the real kubectl and its plug-in on a real control plane. The outputs
// on the pages are compared; `go test ./test/e2e/docs -update` rewrites them. The notation of a
// page is described in test/framework/pages.
package docs
