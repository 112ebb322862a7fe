// Package authorize asks the API server's authorizer whether a user can use a pool.
//
// The right is judged with the user that creates an object: only the review of a create names
// that user ([Rights]). The verdict is kept in an annotation of the object. For objects that a
// service account created, the leader asks again while they wait ([Asker]): the name is in
// another annotation, and the groups of a service account follow from its name. The user of an
// update is never asked for: it may be a controller with more rights than the creator has.
//
// Only the operator writes both annotations. The webhooks replace them whenever an object is
// created, and the ValidatingAdmissionPolicy cadastre-filled-in keeps updates from changing them.
package authorize

// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
