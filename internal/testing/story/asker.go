package story

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/requester"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// Masters is a group whose members can do everything.
const Masters = "system:masters"

// Asker returns an asker that asks the API server for the rights of the users that made an
// object.
func (w *World) Asker() *requester.Asker {
	w.t.Helper()
	return requester.NewAsker(w.ring(), requester.NewRights(w.K8s), w.K8s, w.Clock)
}

// RequestedBy makes an object that is not stored yet name the user that made it, as admission
// does: a user of some groups, which names a pool of another project.
func (w *World) RequestedBy(obj client.Object, pool string, groups ...string) {
	w.t.Helper()
	of := requester.Subject{Kind: kindOf(obj), Namespace: obj.GetNamespace(), Name: obj.GetName(), Pool: pool}
	sealed, err := w.ring().Seal(authenticationv1.UserInfo{Username: "somebody", Groups: groups}, of)
	suite.Must(w.t, err)
	meta := metav1.ObjectMeta{Annotations: obj.GetAnnotations()}
	metav1.SetMetaDataAnnotation(&meta, v1alpha1.AnnotationRequester, sealed)
	obj.SetAnnotations(meta.Annotations)
}

// ring returns a ring with the keys of the control plane, which outlast a story.
func (w *World) ring() *requester.Ring {
	w.t.Helper()
	ring := requester.NewRing(w.plane.admin, w.plane.admin, System, w.Clock)
	suite.Must(w.t, ring.Load(w.t.Context()))
	return ring
}
