package kube

import (
	"fmt"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestAnAPIServerThatHasJustStartedSaysNothingOfTheObject(t *testing.T) {
	claims := schema.GroupResource{Group: "ipam.cadastre.dev", Resource: "ipclaims"}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"no error":                  {nil, false},
		"the object is not there":   {fmt.Errorf("writing: %w", apierrors.NewNotFound(claims, "a")), true},
		"another error":             {apierrors.NewConflict(claims, "a", nil), false},
		"the path is not there yet": {fmt.Errorf("writing: %w", apierrors.NewGenericServerResponse(http.StatusNotFound, "PATCH", claims, "a", "404 page not found", 0, true)), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := IsNotFound(c.err); got != c.want {
				t.Errorf("%v: %v, want %v", c.err, got, c.want)
			}
			if got := IgnoreNotFound(c.err); (got == nil) != (c.want || c.err == nil) {
				t.Errorf("what is left of %v: %v", c.err, got)
			}
		})
	}
}
