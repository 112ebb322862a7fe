// Package policy carries the manifests of the admission policies.
package policy

import "embed"

// Manifests are the ValidatingAdmissionPolicies with their bindings, one policy a file.
//
//go:embed allocations.yaml filled_in.yaml
var Manifests embed.FS
