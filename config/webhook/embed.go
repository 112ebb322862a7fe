// Package webhook carries the manifests of the webhooks.
package webhook

import _ "embed"

// Manifests are the webhook configurations as controller-gen makes them from the
// markers: with the path of each webhook, which kustomize removes.
//
//go:embed manifests.yaml
var Manifests []byte

// MatchConditions are patches of the configurations, which kustomize merges into them.
//
//go:embed match_conditions.yaml
var MatchConditions []byte
