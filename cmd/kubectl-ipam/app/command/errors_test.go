package command

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestAPIServerErrorsAreReadable(t *testing.T) {
	kind := schema.GroupKind{Group: "ipam.cadastre.dev", Kind: "IPClass"}
	spec := field.NewPath("spec")
	one := apierrors.NewInvalid(kind, "gold", field.ErrorList{field.Invalid(spec.Child("length"), 40, "must be 32 or less")})
	two := apierrors.NewInvalid(kind, "gold", field.ErrorList{field.Invalid(spec.Child("length"), 40, "must be 32 or less"), field.Required(spec.Child("ipFamily"), "say which")})
	denied := apierrors.NewConflict(schema.GroupResource{Resource: "ippools"}, "p", errors.New("in use"))
	denied.ErrStatus.Message = `admission webhook "delete.ippool.ipam.cadastre.dev" denied the request: ` + denied.ErrStatus.Message
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "ippools"}, "p", errors.New(`User "a" cannot get resource "ippools"`))
	limit := apierrors.NewForbidden(schema.GroupResource{Resource: "ipclaims"}, "c", errors.New("exceeded limit: release some"))
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"one field is wrong":           {one, `IPClass.ipam.cadastre.dev "gold" is invalid: spec.length: Invalid value: 40: must be 32 or less`},
		"two are":                      {two, "IPClass gold is invalid:\n  spec.length: Invalid value: 40: must be 32 or less\n  spec.ipFamily: Required value: say which"},
		"a webhook refuses it":         {denied, `Operation cannot be fulfilled on ippools "p": in use`},
		"a right is missing":           {forbidden, `ippools "p" is forbidden: User "a" cannot get resource "ippools": ask for the right to do so`},
		"a limit is reached":           {limit, `ipclaims "c" is forbidden: exceeded limit: release some`},
		"it is none of the API server": {errors.New("plain"), "plain"},
	} {
		if got := Explained(c.err); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, c.want)
		}
	}
}
