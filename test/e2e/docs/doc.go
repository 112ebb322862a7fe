// Package docs runs what the documents show: the commands of each page in their order, and
// the YAML between them, with the real kubectl and its plug-in on a real control plane. What
// the pages show of outputs is compared; `go test ./test/e2e/docs -update` writes it anew. How
// a page says what is run is described in test/framework/pages.
package docs
