package plugin

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// defaultClass switches the default class, while claims are created that name none.
func (w *world) defaultClass(t *testing.T) {
	w.Created(build.Class("plots").Length(24).Lengths(20, 28).With(func(s *v1alpha1.IPClassSpec) { s.AllowRetain = new(true) }).Obj())
	w.as(t, "").plays("default-class", map[string]func(){"kubectl ipam default-class plots": sync.OnceFunc(func() {
		w.Pools(build.Pool("plots").CIDR("172.20.0.0/14").Classes("plots").Obj())
		w.Await("the class plots is backed", func(ctx context.Context) bool {
			class := &v1alpha1.IPClass{}
			return w.Get(ctx, client.ObjectKey{Name: "plots"}, class) == nil && class.Status.Pools > 0
		})
	})})
	alice := w.as(t, "alice")
	alice.runs("kubectl ipam default-class plots").ends(command.ExitForbidden)
	w.resumesASwitch(t)
	w.switchesUnderLoad(t)
}

// resumesASwitch finishes or undoes a switch that was interrupted after its first write, and after
// its second.
func (w *world) resumesASwitch(t *testing.T) {
	admin := w.as(t, "")
	for _, name := range []string{"plots", "subnets"} {
		w.annotated("plots", `{"ipam.cadastre.dev/is-default-class":"true","ipam.cadastre.dev/replaces-default":"subnets"}`)
		admin.runs("kubectl ipam default-class " + name).ends(command.ExitDone)
		w.isDefault(t, name)
		admin.runs("kubectl ipam default-class subnets").ends(command.ExitDone)
		w.annotated("plots", `{"ipam.cadastre.dev/is-default-class":"true","ipam.cadastre.dev/replaces-default":"subnets"}`)
		w.annotated("subnets", `{"ipam.cadastre.dev/is-default-class":null}`)
		admin.runs("kubectl ipam default-class " + name).ends(command.ExitDone)
		w.isDefault(t, name)
		admin.runs("kubectl ipam default-class subnets").ends(command.ExitDone)
	}
}

func (w *world) annotated(class, annotations string) {
	w.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":`+annotations+`}}`))
	suite.Must(w, w.Patch(w.Context(), build.Class(class).Obj(), patch))
}

// isDefault expects that one class alone is annotated, and that its annotation names no
// predecessor.
func (w *world) isDefault(t *testing.T, name string) {
	t.Helper()
	classes := &v1alpha1.IPClassList{}
	suite.Must(t, w.List(t.Context(), classes))
	for i := range classes.Items {
		class := &classes.Items[i]
		isDefault := class.Annotations[v1alpha1.AnnotationDefaultClass] == "true"
		if replaces := class.Annotations[v1alpha1.AnnotationReplacesDefault]; isDefault != (class.Name == name) || replaces != "" {
			t.Errorf("class %s: default %t, replaces %q, want %s as the default", class.Name, isDefault, replaces, name)
		}
	}
}

// switchesUnderLoad switches to and fro until each class has served many claims. Each claim
// has its block in the response, by one class or the other.
func (w *world) switchesUnderLoad(t *testing.T) {
	const each = 40
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var mu sync.Mutex
	served := map[string]int{}
	var creators sync.WaitGroup
	for creator := range 4 {
		creators.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				claim := build.Claim("team-b", fmt.Sprintf("of-default-%d-%d", creator, n)).Length(28).Obj()
				if err := w.Create(t.Context(), claim); err != nil {
					t.Errorf("a claim was refused: %v", err)
					return
				}
				if claim.Status.Phase != v1alpha1.ClaimBound {
					t.Errorf("a claim waits: %+v", claim.Status)
				}
				mu.Lock()
				served[claim.Spec.ClassName]++
				mu.Unlock()
				if err := w.Delete(t.Context(), claim); err != nil {
					t.Errorf("a claim cannot be deleted: %v", err)
				}
			}
		})
	}
	admin := w.as(t, "")
	for switches := 0; ; switches++ {
		admin.runs("kubectl ipam default-class " + []string{"plots", "subnets"}[switches%2]).ends(command.ExitDone)
		mu.Lock()
		enough := served["plots"] >= each && served["subnets"] >= each && switches >= 20 && switches%2 == 1
		mu.Unlock()
		if enough || t.Failed() {
			break
		}
	}
	stop()
	creators.Wait()
	if len(served) != 2 {
		t.Errorf("claims were served by %v, want plots and subnets alone", served)
	}
	w.isDefault(t, "subnets")
}
