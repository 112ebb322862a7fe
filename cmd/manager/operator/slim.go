package operator

import (
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/controller/ipclaim"
)

// slimmer makes what the caches keep smaller: of every object the managed fields
// go, and of claims, which are the most, what need not be kept of them.
func slimmer() toolscache.TransformFunc {
	slim, strip := ipclaim.Slimmer(), cache.TransformStripManagedFields()
	return func(obj any) (any, error) {
		if claim, ok := obj.(*v1alpha1.IPClaim); ok {
			slim(claim)
		}
		return strip(obj)
	}
}
