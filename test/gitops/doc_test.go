// Package gitops applies Cadastre's manifests and samples with the code of Flux and of Argo CD
// itself. It is a separate module: the operator needs none of the dependencies of those.
package gitops
