// Package certs keeps the webhooks' serving certificate: it has it issued, makes
// the API server trust it, and serves it from memory.
//
// One Secret holds everything: tls.crt and tls.key, which every replica serves,
// ca.crt, which the webhook configurations trust, and (self-signed mode only)
// ca.key, which signs. Each replica watches that Secret and the configurations,
// and each may write them; there is no leader. Every write carries the resource
// version that it was decided on, so of several replicas that decide at once one
// writes, and the others read what it wrote.
//
// In self-signed mode, no replica serves a certificate that the API server does
// not trust:
//
//   - The bundle comes first. A pass injects ca.crt into the configurations before
//     it serves tls.crt.
//   - A certificate that replaces a good one is served only after the [handover],
//     so that every API server has seen the bundle.
//   - A new authority is put in front of those that are trusted already; these
//     leave the bundle when the last certificate is as old as the [overlap].
//   - A pass reads the configurations, then the Secret, both from the API server.
//     A bundle that replaces another is therefore never an older one.
//
// How authority B and its certificate b follow A and a:
//
//	Secret    ca.crt   A ──────┬── B A ────────────────────┬── B
//	          tls.crt  a ──────┴── b ──────────────────────┴──
//	injected           A ────────┬── B A ────────────────────┬── B
//	served             a ────────┴── handover ──┬── b ─────────
//	                           └──────── overlap ──────────┘
//
// open-policy-agent/cert-controller does not do this: it ends the process where
// the Secret or the mounted files are missing, does not make a deleted Secret
// again, counts a missing configuration as injected, and replaces the authority
// before anything trusts the new one. It also has to list all Secrets of the
// namespace, and its keys are RSA, which makes the handshakes slower.
//
// # Paths
//
// The webhooks have side effects, so they answer the API server alone: the paths in
// the configurations begin with a secret, and requests to other paths get 404. The
// manifests have no path, as they have no bundle; [Paths] injects it. A Secret of
// its own holds the present secret, when it was made, when both configurations had it,
// and those before it. It is apart from the certificate's, which another controller
// writes in FromSecret mode.
//
// The API server writes the path of a webhook that it could not call into its answer. A
// secret that may so have become known is replaced: one that was injected when a replica
// started, and one on whose path a request ended without its answer. That is at most one
// replacement in ten minutes, however many requests a client cancels; and one each hour.
//
// No webhook is called by a path that a replica does not answer:
//
//   - A new secret is injected when it is as old as the [handover]; all replicas
//     watch the Secret. One that has not seen it yet reads the Secret when it is
//     called by it.
//   - The secret before it is accepted until both configurations have the new one, and for
//     a minute then: also if a replica dies between the two writes. No other secret is
//     made before that.
//   - A request with one of the secrets before that, of which the Secret has those of a day
//     at least, is refused with HTTP 503 in a way that has clients try again.
//   - Replicas measure from when they see a change, by their own clocks; only one that
//     has just started goes by the times in the Secret.
package certs

// All rights are limited to the objects' names; `create` can be because the Secret
// is made by a patch.
//
// +kubebuilder:rbac:groups="",namespace=cadastre-system,resources=secrets,resourceNames=cadastre-webhook-server-cert;cadastre-webhook-path,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations,resourceNames=zz-cadastre-mutating-webhook-configuration,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations,resourceNames=cadastre-validating-webhook-configuration,verbs=get;list;watch;patch
