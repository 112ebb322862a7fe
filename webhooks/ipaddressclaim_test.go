package webhooks

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// TestAddressClaimReadsNewPoolLive uses a pool that no cache has shown yet.
func TestAddressClaimReadsNewPoolLive(t *testing.T) {
	s := newStage(t)
	late := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "late", UID: "uid-of-late"}}
	late.Spec.CIDR, late.Spec.IPFamily, late.Spec.RoutingDomain = "10.8.0.0/24", v1alpha1.IPv4, "default"
	must(t, s.store.Create(t.Context(), late))
	claim := `{"metadata":{"name":"a","namespace":"team"},"spec":{"poolRef":{"apiGroup":"ipam.cadastre.dev","kind":"IPPool","name":"late"}}}`
	if answer := s.answer(t, review("IPAddressClaim", claim, "", 0)); !strings.HasPrefix(answer, "allowed") || strings.Contains(answer, "granted") {
		t.Errorf("a claim of a pool that all may use is answered: %s", answer)
	}
}

// TestAddressClaimOfKnownPoolReadsNothingLive allows no live read.
func TestAddressClaimOfKnownPoolReadsNothingLive(t *testing.T) {
	s := newStage(t)
	s.services.Live = build.Before(s.store, func() error {
		t.Error("it reads live")
		return nil
	})
	claim := `{"metadata":{"name":"a","namespace":"team"},"spec":{"poolRef":{"apiGroup":"ipam.cadastre.dev","kind":"IPPool","name":"p"}}}`
	if answer := s.answer(t, review("IPAddressClaim", claim, "", 0)); !strings.HasPrefix(answer, "allowed") {
		t.Errorf("it is answered: %s", answer)
	}
}
