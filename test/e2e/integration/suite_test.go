// Package integration runs the whole operator, webhooks included, on a real control plane, and
// plays the actions of its users. Each topic has a separate file, namespace and address ranges.
package integration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// orphanGrace is short here: tests wait for it.
const orphanGrace = 3 * time.Second

// platformProject is the platform's own project.
const platformProject = "the-platform"

var (
	running *suite.World
	k8s     client.WithWatch
)

func TestIntegration(t *testing.T) {
	specs.Run(t, "Integration", 20*time.Second, 20*time.Millisecond)
}

var _ = BeforeSuite(func() {
	running = suite.Start(GinkgoTB(), cluster.Options{
		ControllerManager: true, Managers: 1, OrphanGrace: orphanGrace,
		ManagerArgs: []string{
			"--platform-project=" + platformProject,
			"--logging-format=json", "-v=2", // read by the specs about the log
		},
	})
	k8s = running
})

// deleted deletes an object.
func deleted(ctx context.Context, obj client.Object) {
	GinkgoHelper()
	Expect(k8s.Delete(ctx, obj)).To(Succeed())
}

// phase returns the phase of a claim.
func phase(ctx context.Context, claim *v1alpha1.IPClaim) func() v1alpha1.ClaimPhase {
	return func() v1alpha1.ClaimPhase { return specs.Stored(ctx, k8s, claim).Status.Phase }
}

// reasons returns those of an object's conditions, by type, with their status.
func reasons(conditions []metav1.Condition) map[string]string {
	by := map[string]string{}
	for _, c := range conditions {
		by[c.Type] = fmt.Sprintf("%s/%s", c.Status, c.Reason)
	}
	return by
}

// available returns the number of free addresses in the status of a pool.
func available(ctx context.Context, pool string) func() string {
	return func() string {
		obj := &v1alpha1.IPPool{}
		Expect(k8s.Get(ctx, client.ObjectKey{Name: pool}, obj)).To(Succeed())
		if obj.Status.Capacity == nil {
			return ""
		}
		return obj.Status.Capacity.Available
	}
}

// witness is a client that records the status codes as they stand on the wire, and the warnings,
// beside the answers of the API server.
type witness struct {
	client.WithWatch

	mu       sync.Mutex
	codes    []int
	warnings []string
}

// newWitness returns a witness that acts as the administrator.
func newWitness() *witness { return witnessWith(running.Config()) }

// newWitnessAs returns a witness that acts as a user.
func newWitnessAs(user string) *witness {
	GinkgoHelper()
	cfg, err := running.User(user)
	Expect(err).NotTo(HaveOccurred())
	return witnessWith(cfg)
}

func witnessWith(cfg *rest.Config) *witness {
	w := &witness{}
	cfg.WarningHandler = w
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return transport{next, w} })
	w.WithWatch = running.Client(cfg)
	return w
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *witness) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.warnings = append(w.warnings, text)
}

// code returns the status code of the last answer.
func (w *witness) code() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.codes[len(w.codes)-1]
}

// takeWarnings returns the warnings since the last call.
func (w *witness) takeWarnings() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	warnings := w.warnings
	w.warnings = nil
	return warnings
}

type transport struct {
	next http.RoundTripper
	w    *witness
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err == nil {
		t.w.mu.Lock()
		t.w.codes = append(t.w.codes, resp.StatusCode)
		t.w.mu.Unlock()
	}
	return resp, err
}

// refusal holds the expected parts of the message to a user.
type refusal struct {
	// code is 422 if it is not set.
	code int
	// field as in spec.cidr; value as it was written, if there is one; remedy is the rest of the
	// message, or a part of it.
	field, value, remedy string
}

// expect fails unless err has all of these parts.
func (r refusal) expect(err error) {
	GinkgoHelper()
	var refused apierrors.APIStatus
	Expect(errors.As(err, &refused)).To(BeTrue(), "got %v, want a refusal of %s", err, r.field)
	status := refused.Status()
	if r.code == 0 {
		r.code = http.StatusUnprocessableEntity
	}
	Expect(int(status.Code)).To(Equal(r.code), status.Message)
	message := status.Message
	if status.Code == http.StatusUnprocessableEntity {
		Expect(status.Details.Causes).To(ContainElement(HaveField("Field", r.field)))
		message = ""
		for _, cause := range status.Details.Causes {
			if cause.Field == r.field {
				message += cause.Field + ": " + cause.Message + "\n"
			}
		}
	}
	_, after, found := strings.Cut(message, r.field)
	Expect(found).To(BeTrue(), "the field %s in: %s", r.field, message)
	if r.value != "" {
		_, after, found = strings.Cut(after, r.value)
		Expect(found).To(BeTrue(), "the value %s in: %s", r.value, message)
	}
	Expect(after).To(ContainSubstring(r.remedy))
}

// recordsHeld returns the names of the records whose holder is a selected one: records of other
// topics come and go at any time.
func recordsHeld(ctx context.Context, meant func(holder types.NamespacedName) bool) []string {
	GinkgoHelper()
	list := &v1alpha1.IPAllocationList{}
	Expect(k8s.List(ctx, list)).To(Succeed())
	names := []string{}
	for i := range list.Items {
		record := &list.Items[i]
		holder := types.NamespacedName{Namespace: cmp.Or(record.Spec.ClaimRef.Namespace, record.Namespace), Name: record.Spec.ClaimRef.Name}
		if record.Spec.ClaimRef.Kind == string(v1alpha1.PoolKindIPPool) {
			holder.Namespace = ""
		}
		if meant(holder) {
			names = append(names, record.Namespace+"/"+record.Name)
		}
	}
	return names
}

// recordsOf returns the names of the records that a claim or pool holds.
func recordsOf(ctx context.Context, obj client.Object) []string {
	GinkgoHelper()
	return recordsHeld(ctx, func(holder types.NamespacedName) bool {
		if obj.GetName() == "" { // its name is generated
			return holder.Namespace == obj.GetNamespace() && strings.HasPrefix(holder.Name, obj.GetGenerateName())
		}
		return holder == client.ObjectKeyFromObject(obj)
	})
}

// written returns an object as a user writes it, including content that the API's Go types cannot
// hold.
func written(kind, namespace, name, spec string) *unstructured.Unstructured {
	GinkgoHelper()
	content := map[string]any{}
	Expect(yaml.Unmarshal([]byte(spec), &content)).To(Succeed(), spec)
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": content}}
	obj.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	obj.SetNamespace(namespace)
	obj.SetName(name)
	return obj
}
