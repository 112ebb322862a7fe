// Package config holds the manifests of the operator that its programs need.
package config

import "embed"

var (
	// CRDs holds the generated CRDs, in crd/bases.
	//
	//go:embed crd/bases/*.yaml
	CRDs embed.FS
	// Policies holds the ValidatingAdmissionPolicies with their bindings, one policy a file, in
	// policy.
	//
	//go:embed policy/allocations.yaml policy/cluster_networks.yaml policy/filled_in.yaml
	Policies embed.FS

	// OperatorRoles holds the roles of the operator's service account.
	//
	//go:embed rbac/role.yaml
	OperatorRoles []byte
	// UserRoles holds the roles for people.
	//
	//go:embed rbac/users/roles.yaml
	UserRoles []byte

	// Webhooks holds the webhook configurations as controller-gen makes them from the markers:
	// with the path of each webhook, which kustomize removes.
	//
	//go:embed webhook/manifests.yaml
	Webhooks []byte
	// ClusterWebhooks holds the configuration of the webhooks of Clusters, in the same form.
	//
	//go:embed webhook/cluster.yaml
	ClusterWebhooks []byte
	// MatchConditions holds patches of the configurations, which kustomize merges into them.
	//
	//go:embed webhook/match_conditions.yaml
	MatchConditions []byte
)
