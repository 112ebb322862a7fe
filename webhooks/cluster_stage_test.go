package webhooks

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// operatorClient returns the client with which the operator writes the claims of Clusters: as the
// API server does, it asks the webhook on claims before it stores one.
func (s *stage) operatorClient(store client.WithWatch) client.Client {
	return interceptor.NewClient(store, interceptor.Funcs{
		Create: func(ctx context.Context, store client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if claim, ok := obj.(*v1alpha1.IPClaim); ok {
				return s.createClaim(ctx, claim)
			}
			return store.Create(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, store client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := s.failure("patch", obj); err != nil {
				return err
			}
			return store.Patch(ctx, obj, patch, opts...)
		},
		Delete: s.deleteClaim,
	})
}

// createClaim stores a claim as its webhook answers the operator. If the call "review IPClaim" fails,
// it stores the claim as it is, as the API server does with the failure of the webhook ignored.
func (s *stage) createClaim(ctx context.Context, claim *v1alpha1.IPClaim) error {
	if s.failure("review", claim) != nil {
		return s.store.Create(ctx, claim)
	}
	raw, err := json.Marshal(claim)
	if err != nil {
		return err
	}
	req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: "2", Operation: admissionv1.Create, Namespace: claim.Namespace, Name: claim.Name, Object: runtime.RawExtension{Raw: raw},
	}}
	req.UserInfo.Username = operator
	response := s.mutate["IPClaim"].Handle(ctx, req)
	edited, err := patchObject(req, &response)
	if err != nil {
		return err
	}
	if !response.Allowed {
		refusal := *response.Result
		refusal.Status = metav1.StatusFailure
		refusal.Message = `admission webhook "create.ipclaim.ipam.cadastre.dev" denied the request: ` + refusal.Message
		return &apierrors.StatusError{ErrStatus: refusal}
	}
	*claim = v1alpha1.IPClaim{}
	if err := json.Unmarshal(edited, claim); err != nil {
		return err
	}
	return s.store.Create(ctx, claim)
}

// deleteClaim deletes a claim, if the preconditions hold, and its record, as the controllers do.
func (s *stage) deleteClaim(ctx context.Context, store client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
	if err := ctx.Err(); err != nil { // the store in memory does not look
		return err
	}
	if err := s.failure("delete", obj); err != nil {
		return err
	}
	options := (&client.DeleteOptions{}).ApplyOptions(opts)
	if options.Preconditions != nil {
		s.deletions <- *options.Preconditions
	}
	if err := store.Delete(ctx, obj, opts...); err != nil {
		return err
	}
	claim, ok := obj.(*v1alpha1.IPClaim)
	if !ok || claim.Spec.AllocationName == "" {
		return nil
	}
	record := &v1alpha1.IPAllocation{}
	if err := store.Get(ctx, client.ObjectKey{Namespace: claim.Namespace, Name: claim.Spec.AllocationName}, record); err != nil {
		return err
	}
	record.Finalizers = nil
	if err := store.Update(ctx, record); err != nil {
		return err
	}
	return store.Delete(ctx, record)
}

// networkClasses holds the classes of the networks of Clusters, and the pool and the length of each.
var networkClasses = map[string]struct {
	cidr   string
	length int
}{
	"pods":     {"10.64.0.0/12", 20},
	"pods-v6":  {"fd00:64::/40", 56},
	"services": {"10.96.0.0/16", 20},
	"vips":     {"10.6.0.0/24", 32},
	"ranges":   {"10.7.0.0/24", 28},
	"full":     {"10.8.0.0/30", 29},
	"unbacked": {"10.9.0.0/16", 20}, // its pool does not have it
}

// furnishNetworks puts on the stage the classes and pools of the networks of Clusters.
func furnishNetworks(t *testing.T, s *stage) {
	t.Helper()
	for name, c := range networkClasses {
		cidr := netip.MustParsePrefix(c.cidr)
		pool := ipam.Pool{
			Key: ipam.PoolNamed(name), Visibility: ipam.VisibilityShared, CIDR: cidr, Family: ipam.FamilyOf(cidr), Strategy: ipam.StrategyFirstFit,
			Length: cidr.Bits(), Lengths: ipam.Lengths{Min: 8, Max: cidr.Addr().BitLen()}, OnExhaustion: ipam.OnExhaustionWait,
		}
		pool.Home = ipam.PoolKey{Kind: ipam.PoolKindRoutingDomain, Name: "default", Family: pool.Family}
		if name != "unbacked" {
			pool.Classes = []string{name}
		}
		s.Ledger.Describe(pool)
		s.Catalog.SetPool(pool)
		s.record(t, poolRecord(pool))
		s.Catalog.SetClass(inventory.ClassEntry{Class: ipam.Class{
			Name: name, Family: pool.Family, Length: c.length, Lengths: ipam.Lengths{Min: 12, Max: cidr.Addr().BitLen()}, Reclaim: ipam.ReclaimDelete,
		}})
	}
}

// podsClaim returns a claim of an earlier attempt to create a Cluster: of its pods, of class pods.
func podsClaim(cluster, cidr string) *v1alpha1.IPClaim {
	n := convert.ClusterNetwork{Purpose: convert.PurposePods, Class: "pods", Length: ipam.NoLength}
	claim := n.Claim(ipam.Name{Namespace: "team", Name: cluster})
	claim.Annotations[v1alpha1.AnnotationAttempt] = "earlier"
	if claim.Spec.CIDR = cidr; cidr != "" {
		claim.Spec.PrefixLength = new(int32(netip.MustParsePrefix(cidr).Bits()))
	}
	return claim
}

// clusterJSON returns a Cluster with annotations of our group, such as pods=class, and a spec.
func clusterJSON(name, spec string, annotations ...string) string {
	entries := []string{`"example.com/kept":"yes"`}
	for _, text := range annotations {
		key, value, _ := strings.Cut(text, "=")
		entries = append(entries, fmt.Sprintf("%q:%q", v1alpha1.GroupVersion.Group+"/"+key, value))
	}
	slices.Sort(entries)
	return fmt.Sprintf(`{"metadata":{"name":%q,"labels":{%q:%q,"a":"b"},"annotations":{%s}},"spec":%s}`,
		name, v1alpha1.LabelClusterNetworks, v1alpha1.ClusterNetworksEnabled, strings.Join(entries, ","), spec)
}
