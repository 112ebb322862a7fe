package ipaddressclaim

import (
	"testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

func TestForeignFinalizerMarksAddressInUse(t *testing.T) {
	for finalizer, want := range map[string]bool{
		"example.com/vm":                             true,
		v1alpha1.FinalizerRelease:                    false,
		"metal3data.infrastructure.cluster.x-k8s.io": false,
		"ipam.cluster.x-k8s.io/ReleaseAddress":       false,
		"foregroundDeletion":                         false,
	} {
		if got := isInUse(build.AddressClaim("team", "a").Finalizer(finalizer).Obj()); got != want {
			t.Errorf("%s: in use is %t, want %t", finalizer, got, want)
		}
	}
}
