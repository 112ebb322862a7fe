// Package installation finds the installed parts of Cadastre in a cluster, and checks that all
// exist and are as they are shipped.
package installation
