// Package installation finds what is installed of Cadastre in a cluster, and checks that
// it is all there and as it is shipped.
package installation
