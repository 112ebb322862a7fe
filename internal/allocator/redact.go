package allocator

import (
	"errors"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Redacted keeps from whoever asks from a namespace who holds a block, unless
// that is in the same project. Where the namespace is empty it is the platform
// that asks, which may know.
func (a *Allocator) Redacted(namespace string, err error) error {
	var taken *ipam.TakenError
	if namespace == "" || !errors.As(err, &taken) {
		return err
	}
	asking, _ := a.catalogue.Tenant(namespace)
	holding, known := a.catalogue.Tenant(taken.Holder.Namespace)
	if known && asking.Project == holding.Project {
		return err
	}
	return taken.Redacted()
}
