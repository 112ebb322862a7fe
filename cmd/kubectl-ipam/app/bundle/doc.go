// Package bundle writes the objects and logs that are needed to understand a problem into a ZIP
// file, and no secrets.
//
// It never reads Secrets. All data passes two filters: [Redact] takes the fields that hold secrets
// out of an object, and a [Filter] takes out of every text all that looks like a secret, or is
// known to be one: the paths of the webhooks, tokens and private keys.
package bundle
