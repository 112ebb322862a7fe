// Package webhook carries the generated manifests of the webhooks.
package webhook

import _ "embed"

// Manifests are the webhook configurations as controller-gen makes them from the
// markers: with the path of each webhook, which kustomize removes.
//
//go:embed manifests.yaml
var Manifests []byte
