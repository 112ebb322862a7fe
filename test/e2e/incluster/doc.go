// Package incluster tests the pools of Cluster API's in-cluster IPAM provider, served by Cadastre and beside
// that provider.
package incluster
