// Package requester keeps the user that asked for a pool, for objects that wait for the right
// to use it.
//
// The right is judged with the user that creates an object, at admission, where the API server
// names the user. Later requests do not name that user. So admission notes the user in an
// annotation of an object that cannot use its pool: a claim, Cluster API's claim, or a child
// pool. The controllers ask the authorizer again with that user until the right exists
// ([Asker]).
//
// The annotation is sealed ([Ring]): only the operator can read it, as the groups of a user are
// private, and only the operator can make it. It is bound to the object and its pool, so that a
// copy on another object is worth nothing. The ValidatingAdmissionPolicy cadastre-filled-in
// keeps it from being changed, and the webhooks write it again whenever an object is created.
package requester

// The right to create is used by a patch, so that it can be limited to the name.
//
// +kubebuilder:rbac:groups="",namespace=cadastre-system,resources=secrets,resourceNames=cadastre-requester-key,verbs=get;create;patch
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
