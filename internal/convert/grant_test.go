package convert

import (
	"testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

func TestGrantRoundTrips(t *testing.T) {
	for _, given := range []ipam.Grant{{}, {PoolUID: "1-2-3"}} {
		text := GrantText(ipam.PoolNamed("p"), given)
		if got := grant(map[string]string{v1alpha1.AnnotationUseGranted: text}, "p"); got == nil || *got != given {
			t.Errorf("%q is read as %+v, want %+v", text, got, given)
		}
	}
	for _, text := range []string{"", "/", "/1-2-3", "q", "q/1-2-3", "p.q"} {
		for _, pool := range []string{"p", ""} {
			if got := grant(map[string]string{v1alpha1.AnnotationUseGranted: text}, pool); got != nil {
				t.Errorf("%q is read as %+v for pool %q, want no right", text, got, pool)
			}
		}
	}
	if grant(nil, "") != nil {
		t.Error("an object without the annotation has a right")
	}
}
