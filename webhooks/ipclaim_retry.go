package webhooks

// A replica can end, or fail to answer in time, while it is asked about the create of an IPClaim.
// The API server calls a webhook once. Then it refuses the object with an internal error, which
// clients do not retry, or ignores the failure and stores a claim without block and status. So two
// webhooks have the same handler, and the API server calls them in this order:
//
//   - create.ipclaim.ipam.cadastre.dev, whose failure is ignored,
//   - retry.ipclaim.ipam.cadastre.dev, whose failure refuses the claim. It is called only if the
//     first one has not answered: its match condition, has-no-answer in
//     config/webhook/match_conditions.yaml, is that the claim has no UID.
//
// An answer writes a UID as its mark. The API server removes the UID that a client sends, and writes
// its own when it stores the object. So no client can set the mark, and it is never stored.

// +kubebuilder:webhook:path=/mutate-ipam-cadastre-dev-v1alpha1-ipclaim,mutating=true,failurePolicy=ignore,sideEffects=NoneOnDryRun,groups=ipam.cadastre.dev,resources=ipclaims,verbs=create,versions=v1alpha1,name=create.ipclaim.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5,reinvocationPolicy=Never
// +kubebuilder:webhook:path=/mutate-ipam-cadastre-dev-v1alpha1-ipclaim,mutating=true,failurePolicy=fail,sideEffects=NoneOnDryRun,groups=ipam.cadastre.dev,resources=ipclaims,verbs=create,versions=v1alpha1,name=retry.ipclaim.ipam.cadastre.dev,admissionReviewVersions=v1,timeoutSeconds=5,reinvocationPolicy=Never

// markAnswered marks a create as answered, so that the API server does not ask again.
func (d *draft) markAnswered() error { return d.set("answered", "metadata", "uid") }
