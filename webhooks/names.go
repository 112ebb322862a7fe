package webhooks

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// generatedPrefix is the length of generateName that the API server itself would use.
const generatedPrefix = 58

// nameFor returns the name of an object that is being created. With generateName the API server
// would make a name only after admission, too late for a record to carry it; 8 random characters
// instead of its 5 make a collision so unlikely that no retry is needed.
func nameFor(meta metav1.Object) string {
	prefix := meta.GetGenerateName()
	if meta.GetName() != "" || prefix == "" {
		return meta.GetName()
	}
	return prefix[:min(len(prefix), generatedPrefix)] + rand.String(8)
}

// metadataErrors returns the errors for which the API server will refuse the metadata, after
// admission.
func metadataErrors(meta metav1.Object, namespaced bool) field.ErrorList {
	return validation.ValidateObjectMetaAccessor(meta, namespaced, validation.NameIsDNSSubdomain, field.NewPath("metadata"))
}

// exists reports whether an object exists. If the cache shows the object, it asks the API server
// again, because the object may have been deleted since.
func exists(ctx context.Context, cached, live client.Reader, obj client.Object) (bool, error) {
	key := client.ObjectKeyFromObject(obj)
	for _, reader := range []client.Reader{cached, live} {
		err := reader.Get(ctx, key, obj)
		if kubeutil.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("looking whether %q exists: %w", key.Name, err)
		}
	}
	return true, nil
}
