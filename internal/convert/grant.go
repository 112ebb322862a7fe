package convert

import (
	"strings"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// GrantText returns a grant as the value of the annotation [v1alpha1.AnnotationUseGranted].
func GrantText(pool ipam.PoolKey, grant ipam.Grant) string {
	if grant.PoolUID == "" {
		return pool.Name
	}
	return pool.Name + "/" + grant.PoolUID
}

// grant reads the right to use the pool of a name from the annotations of an object.
func grant(annotations map[string]string, pool string) *ipam.Grant {
	name, uid, _ := strings.Cut(annotations[v1alpha1.AnnotationUseGranted], "/")
	if name == "" || name != pool {
		return nil
	}
	return &ipam.Grant{PoolUID: uid}
}
