package convert

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// objectName refuses what cannot be the name of an object (RFC 1123): nothing of
// that name will ever be there.
func objectName(path *field.Path, name string) field.ErrorList {
	if wrong := validation.NameIsDNSSubdomain(name, false); len(wrong) > 0 {
		return field.ErrorList{field.Invalid(path, name, strings.Join(wrong, "; "))}
	}
	return nil
}
