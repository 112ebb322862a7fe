// Package migrate takes over the pools of Metal3 while its provider runs, and those of a CSV file
// and of NetBox, and kills the imports: no address changes, and none is given twice.
package migrate
