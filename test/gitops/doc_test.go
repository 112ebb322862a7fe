// Package gitops applies Cadastre's manifests and samples with the code of Flux and of Argo
// CD itself. It is a module of its own: what those need is none of the operator's.
package gitops
