// Package metal3 imports the API of Metal3's IP address manager, from which its CRDs are
// generated.
package metal3

import _ "github.com/metal3-io/ip-address-manager/api/v1alpha1" // kept in go.mod
