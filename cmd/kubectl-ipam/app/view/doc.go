// Package view holds the commands that show the address space: pools, free, map, tree and who.
package view
