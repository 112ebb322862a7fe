// Package plugin runs every command of the kubectl plug-in against a cluster with two routing
// domains, IPv6, child pools, claims that wait and retained blocks.
//
// The output of the commands is compared with testdata/*.golden; -update rewrites these.
package plugin
