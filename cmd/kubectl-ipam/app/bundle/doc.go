// Package bundle writes what is needed to understand a problem into a ZIP file, and no
// secrets.
//
// Secrets are never read. What is read passes two filters: [Redact] takes out of an object
// the fields that hold secrets, and a [Filter] takes out of every text what looks like one,
// or is known to be one: the paths of the webhooks, tokens and private keys.
package bundle
