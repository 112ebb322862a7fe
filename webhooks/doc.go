// Package webhooks answers the API server's admission requests, one file a
// kind. Each answer is a thin layer around the call that the reconciler makes
// too.
//
// Mutating webhooks run before schema and CEL validation, quota and other
// people's validating webhooks, any of which may still refuse what was recorded
// here. So they check everything first and record last; what is refused all the
// same leaves an orphan, which is collected.
//
// A webhook never makes an object impossible to edit or to delete: on update
// only what changed is judged, and an object that is being deleted always
// passes.
//
// +kubebuilder:webhookconfiguration:mutating=true,name=zz-cadastre-mutating-webhook-configuration
// +kubebuilder:webhookconfiguration:mutating=false,name=cadastre-validating-webhook-configuration
package webhooks
