// Package kube has the few things that client-go and controller-runtime leave out.
package kubeutil
