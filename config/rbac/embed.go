// Package rbac carries the manifests of the roles.
package rbac

import _ "embed"

// Operator are the roles of the operator's service account.
//
//go:embed role.yaml
var Operator []byte

// Users are the roles for people.
//
//go:embed users/roles.yaml
var Users []byte
