// Package plugin runs every command of the kubectl plug-in against a cluster with two
// routing domains, IPv6, child pools, claims that wait and retained blocks.
//
// What the commands print is compared with testdata/*.golden; -update writes these anew.
package plugin
