package operator

import (
	"maps"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// TestTheCacheKeepsOnlyWhatIsRead of the labels and annotations of what tenants make: they
// may be as long as the API server stores.
func TestTheCacheKeepsOnlyWhatIsRead(t *testing.T) {
	cluster := map[string]string{clusterv1.ClusterNameLabel: "fleet"}
	watched := map[string]string{clusterv1.ClusterNameLabel: "fleet", clusterv1.WatchLabel: "here"}
	pool := map[string]string{v1alpha1.LabelPool: "p", v1alpha1.LabelPoolKind: "IPPool"}
	read := map[string]string{v1alpha1.AnnotationPaused: "", v1alpha1.AnnotationSticky: "node-1", v1alpha1.AnnotationRequester: "sealed"}
	for name, c := range map[string]struct {
		obj          client.Object
		read, others map[string]string
	}{
		"an IPClaim":        {obj: &v1alpha1.IPClaim{}, others: cluster},
		"an IPAddressClaim": {obj: &ipamv1.IPAddressClaim{}, read: watched},
		"an IPAddress":      {obj: &ipamv1.IPAddress{}, read: pool},
		"a LocalIPPool":     {obj: &v1alpha1.LocalIPPool{}, read: map[string]string{"zone": "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			labels, annotations := maps.Clone(c.others), maps.Clone(read)
			if labels == nil {
				labels = map[string]string{}
			}
			maps.Copy(labels, c.read)
			if _, ok := c.obj.(*v1alpha1.LocalIPPool); !ok {
				labels["long"] = strings.Repeat("x", 1<<10)
			}
			annotations["long"] = strings.Repeat("x", 1<<18)
			c.obj.SetLabels(labels)
			c.obj.SetAnnotations(annotations)
			c.obj.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kubectl"}})
			if _, err := slimmer()(c.obj); err != nil {
				t.Fatal(err)
			}
			if got := c.obj.GetLabels(); !maps.Equal(got, c.read) {
				t.Errorf("labels are %v, want %v", got, c.read)
			}
			if got := c.obj.GetAnnotations(); !maps.Equal(got, read) {
				t.Errorf("annotations are %v, want %v", got, read)
			}
			if c.obj.GetManagedFields() != nil {
				t.Error("the managed fields are kept")
			}
		})
	}
}
