package hostile

import (
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// TestADryRunWithMoreLabelsThanMayBeIsRefusedAtOnce expects an answer that is short, and without a
// path of the webhooks in it. An edit of an object as large is served.
func TestADryRunWithMoreLabelsThanMayBeIsRefusedAtOnce(t *testing.T) {
	w := suite.Start(t, cluster.Options{Managers: 1})
	w.Created(build.Class("hosts").Length(32).Obj())
	w.Pools(build.Pool("base").CIDR("10.1.0.0/16").Classes("hosts").Obj())
	claim := build.Claim("default", "many").Class("hosts").Obj()
	claim.Labels = map[string]string{}
	for n := range 20_000 {
		claim.Labels[fmt.Sprint("-", n)] = "/"
	}
	began := time.Now()
	err := w.Create(t.Context(), claim, client.DryRunAll)
	if took := time.Since(began); !apierrors.IsInvalid(err) || took > slowest/2 {
		t.Fatalf("it is answered after %v: %v", took, err)
	}
	if text := err.Error(); len(text) > 1<<10 || !strings.Contains(text, "metadata.labels: Too many: 20000") || strings.Contains(text, "/mutate-") {
		t.Errorf("it is answered with %d bytes: %.2000s", len(text), text)
	}

	small := build.Claim("default", "small").Class("hosts").Obj()
	suite.Must(t, w.Create(t.Context(), small))
	edited := small.DeepCopy()
	edited.Labels = map[string]string{}
	for n := range 5_000 {
		edited.Labels[fmt.Sprint("label-", n)] = "x"
	}
	suite.Must(t, w.Patch(t.Context(), edited, client.MergeFrom(small))) // no webhook is asked
	before := edited.DeepCopy()
	edited.Spec.ReclaimPolicy = "Retain"
	if err := w.Patch(t.Context(), edited, client.MergeFrom(before)); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.reclaimPolicy") {
		t.Errorf("an edit of one with 5,000 labels is answered: %v", err)
	}
	suite.Must(t, w.Delete(t.Context(), edited))
}
