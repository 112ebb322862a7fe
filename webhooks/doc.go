// Package webhooks answers the API server's admission requests, with one file for each kind. Each
// answer is a thin layer around the call that the reconciler makes too.
//
// Mutating webhooks run before schema and CEL validation, quota and the validating webhooks of
// other parties, any of which can still refuse an object whose block was recorded here. So they
// check everything first and record last; an object that is refused nevertheless leaves an orphan,
// which is collected.
//
// A webhook never makes an object impossible to edit or to delete: on update it judges only the
// changes, and an object that is being deleted always passes.
//
// +kubebuilder:webhookconfiguration:mutating=true,name=zz-cadastre-mutating-webhook-configuration
// +kubebuilder:webhookconfiguration:mutating=false,name=cadastre-validating-webhook-configuration
package webhooks
