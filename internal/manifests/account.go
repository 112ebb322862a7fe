package manifests

import "strings"

// The namespace and the service account that the manifests name. An operator may have others.
const (
	DefaultNamespace = "cadastre-system"
	ServiceAccount   = "cadastre-controller-manager"
)

// Account represents the service account under which an operator runs.
type Account struct{ Namespace, Name string }

// replaceIn returns manifests that name the account in place of the default one, as kustomize, Helm
// and clusterctl write them.
func (a Account) replaceIn(manifest []byte) []byte {
	return []byte(strings.NewReplacer(DefaultNamespace, a.Namespace, ServiceAccount, a.Name).Replace(string(manifest)))
}
