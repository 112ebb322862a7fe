// Package installed acts as the administrator of a cluster on which the operator is installed: it
// asks kubectl ipam doctor, and removes the operator as documented.
package installed

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/installation"
	"github.com/cadastre-dev/cadastre/internal/operator"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// IsHealthy waits until doctor, asked about a namespace of claims, finds the operator in its
// namespace and nothing wrong, except the Pods, which do not run here. A replica may lead a moment
// after it is ready.
func IsHealthy(w *suite.World, namespace, claims string) {
	w.Helper()
	found := installation.Namespace(w.Context(), w)
	if found != namespace {
		w.Errorf("doctor finds the operator in namespace %s, want %s", found, namespace)
	}
	doctor := installation.Doctor{
		Client: w, Namespace: claims, Operator: found, ServiceAccount: installation.AccountIn(w.Context(), w, found), Now: time.Now,
	}
	var failed []installation.Check
	if err := wait.PollUntilContextTimeout(w.Context(), time.Second, w.Patience, true, func(ctx context.Context) (bool, error) {
		failed = slices.DeleteFunc(doctor.Run(ctx), func(check installation.Check) bool {
			return check.Result != installation.ResultFailed || check.Name == "deployment"
		})
		return len(failed) == 0, nil
	}); err != nil {
		w.Errorf("doctor: %+v", failed)
	}
}

// The objects that remove-finalizers needs and installs, and the last step of the docs deletes.
const (
	RemovalKinds = "validatingadmissionpolicies,validatingadmissionpolicybindings,clusterrolebindings"
	RemovalName  = "cadastre-removal"
)

// PrepareRemoval gives the operator the right to remove finalizers, and removes them.
func PrepareRemoval(w *suite.World, namespace, account string) {
	w.Helper()
	w.RunKubectl("create", "clusterrolebinding", RemovalName, "--clusterrole="+RemovalName, "--serviceaccount="+namespace+":"+account)
	suite.Must(w, RemoveFinalizers(w, namespace, account))
}

// RemoveFinalizers acts as `kubectl exec deploy/cadastre-controller-manager -- /manager
// remove-finalizers` does in a cluster.
func RemoveFinalizers(w *suite.World, namespace, account string) error {
	w.Helper()
	asOperator, err := w.OperatorConfig(w.Context())
	suite.Must(w, err)
	return operator.RemoveFinalizers(w.Context(), asOperator, operator.Options{Namespace: namespace, ServiceAccount: account}, w.Output())
}

// FinishRemoval deletes the objects of the removal.
func FinishRemoval(w *suite.World) {
	w.Helper()
	w.RunKubectl("delete", RemovalKinds, RemovalName)
}
