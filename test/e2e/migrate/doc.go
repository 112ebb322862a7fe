// Package migrate takes over the pools of other IPAM providers while they run, are stopped, and
// while the import is interrupted: no address changes, and none is given twice.
package migrate
