// Package metal3 holds on to the API of Metal3's IP address manager, whose CRDs are
// generated from it.
package metal3

import _ "github.com/metal3-io/ip-address-manager/api/v1alpha1" // kept in go.mod
