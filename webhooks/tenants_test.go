package webhooks

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// answered sends a request that must be allowed, and returns the object as it is stored then.
func (s *stage) answered(t *testing.T, kind string, req admission.Request) (*v1alpha1.IPClaim, []string) {
	t.Helper()
	response := s.mutate[kind].Handle(t.Context(), req)
	edited := applyAnswer(t, req, &response)
	if !response.Allowed {
		t.Fatalf("refused: %+v", response.Result)
	}
	obj := &v1alpha1.IPClaim{}
	must(t, json.Unmarshal(edited, obj))
	return obj, response.Warnings
}

// recorded returns the names of the IPAllocations of a namespace.
func (s *stage) recorded(t *testing.T, namespace string) []string {
	t.Helper()
	list := &v1alpha1.IPAllocationList{}
	must(t, s.store.List(t.Context(), list, client.InNamespace(namespace)))
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

const addressOfPool = `{"metadata":{"name":"a","namespace":"team"},"spec":{"poolRef":{"apiGroup":"ipam.cadastre.dev","kind":"IPPool","name":"p"},"address":"10.0.0.7","prefix":24}}`

func TestDryRunOfIPAddressRecordsNothing(t *testing.T) {
	s := newStage(t)
	s.answered(t, "IPAddress", review("IPAddress", addressOfPool, "", dry))
	if names := s.recorded(t, "team"); len(names) > 0 {
		t.Errorf("the dry run recorded %v", names)
	}
	s.answered(t, "IPAddress", review("IPAddress", addressOfPool, "", 0))
	if names := s.recorded(t, "team"); len(names) != 1 {
		t.Errorf("a request without dry run recorded %v", names)
	}
}

func TestIPAddressWarningHidesHolderFromOtherProjects(t *testing.T) {
	s := newStage(t)
	s.answered(t, "IPAddress", review("IPAddress", addressOfPool, "", 0))
	for namespace, named := range map[string]bool{"team": true, "strangers": false} {
		req := review("IPAddress", strings.Replace(addressOfPool, `"name":"a"`, `"name":"b"`, 1), "", 0)
		req.Namespace = namespace
		_, warnings := s.answered(t, "IPAddress", req)
		if len(warnings) != 1 || strings.Contains(warnings[0], "team/a") != named || !strings.Contains(warnings[0], "10.0.0.7/32") {
			t.Errorf("namespace %s is warned: %q; the holder is named: want %t", namespace, warnings, named)
		}
	}
}

func TestWaitingClaimNamesNoRecord(t *testing.T) {
	s := newStage(t)
	const text = `{"metadata":{"name":"c","namespace":"team"},"spec":{"className":"missing","cidr":"10.0.0.16/28","allocationName":"somebody-s"}}`
	claim, _ := s.answered(t, "IPClaim", review("IPClaim", text, "", 0))
	if claim.Spec.AllocationName != "" || claim.Spec.CIDR != "10.0.0.16/28" {
		t.Errorf("it waits with allocationName %q and cidr %q", claim.Spec.AllocationName, claim.Spec.CIDR)
	}
}

func TestWaitingClaimStatesRequester(t *testing.T) {
	s := newStage(t)
	for name, c := range map[string]struct{ spec, user, want string }{
		"it waits":             {`{"className":"missing"}`, entitled, entitled},
		"it waits, long name":  {`{"className":"missing"}`, strings.Repeat("ü", 2000), strings.Repeat("ü", 1024)},
		"it is bound":          {`{"className":"gold"}`, entitled, ""},
		"its maker is unknown": {`{"className":"missing"}`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			req := review("IPClaim", `{"metadata":{"name":"c","namespace":"team","annotations":{"ipam.cadastre.dev/requested-by":"forged"}},"spec":`+c.spec+`}`, "", 0)
			req.UserInfo.Username = c.user
			claim, _ := s.answered(t, "IPClaim", req)
			if got := claim.Annotations[v1alpha1.AnnotationRequestedBy]; got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestIPAddressInNewNamespaceIsRecorded(t *testing.T) {
	s := newStage(t)
	must(t, s.store.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "new"}}))
	req := review("IPAddress", strings.ReplaceAll(addressOfPool, "team", "new"), "", 0)
	req.Namespace = "new"
	if _, warnings := s.answered(t, "IPAddress", req); len(warnings) > 0 || len(s.recorded(t, "new")) != 1 {
		t.Errorf("it has the records %v, and the warnings %q", s.recorded(t, "new"), warnings)
	}
}
