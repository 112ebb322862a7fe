// Package crd carries the manifests of the API's CRDs.
package crd

import "embed"

// Bases are the generated CRDs, in bases/.
//
//go:embed bases/*.yaml
var Bases embed.FS
