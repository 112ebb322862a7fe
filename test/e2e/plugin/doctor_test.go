package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/health"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/installation"
	"github.com/cadastre-dev/cadastre/internal/manifests"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// doctor checks an installation in which nothing fails.
func (w *world) doctor(t *testing.T) {
	w.as(t, "").plays("doctor", nil)
	w.as(t, "alice").plays("doctor-tenant", nil, "team-b")
}

// version shows versions.
func (w *world) version(t *testing.T) {
	w.as(t, "").plays("version", nil)
	w.as(t, "alice").plays("version-tenant", nil)
}

// harm holds one thing that is broken, and repaired again.
type harm struct {
	what string
	// do breaks it, and returns the repair.
	do func() (repair func())
	// named is the check that names it, with this result.
	named  string
	result installation.Result
}

// TestDoctorFindsBrokenInstallation breaks an installation, one thing at a time.
func TestDoctorFindsBrokenInstallation(t *testing.T) {
	w := &world{World: suite.Start(t, cluster.Options{Managers: 1})}
	w.Namespace("team-a")
	w.Created(build.Class("subnets").Default().Length(24).Obj())
	w.Pools(build.Pool("p").CIDR("10.0.0.0/16").Classes("subnets").Obj())
	admin := w.as(t, "")
	admin.runs("kubectl ipam doctor -o name").ends(command.ExitDone)
	for _, h := range w.harmsWhileItRuns() {
		w.harmed(admin, h)
	}
	suite.Must(t, w.Managers[0].Stop())
	w.harmed(admin, harm{what: "no replica runs", do: nothing, named: "trial/claim", result: installation.ResultFailed})
	for _, h := range w.harmsWhileItIsDown() {
		w.harmed(admin, h)
	}
	admin.runs("kubectl ipam doctor -o name --wait=2s").ends(command.ExitTimedOut)
	admin.matches("doctor-broken")
}

// harmed does harm, runs doctor, and adds the failed checks to the transcript.
func (w *world) harmed(admin *terminal, h harm) {
	w.Helper()
	defer h.do()()
	// The operator and the API server see the change by their watches.
	w.Await("doctor names "+h.what, func(context.Context) bool {
		ran := admin.quietly("kubectl ipam doctor -n team-a -o json")
		var report health.DoctorReport
		suite.Must(w, json.Unmarshal([]byte(ran.out), &report))
		i := slices.IndexFunc(report.Checks, func(c installation.Check) bool { return c.Name == h.named && c.Result == h.result })
		if i < 0 || (h.result == installation.ResultFailed) != (ran.code == command.ExitUnhealthy) {
			return false
		}
		c := report.Checks[i]
		fmt.Fprintf(&admin.script, "# %s\n%s: %s: %s: %s\n\n", h.what, c.Name, c.Result, c.Message, c.Remedy)
		return true
	})
}

func nothing() func() { return func() {} }

func (w *world) harmsWhileItRuns() []harm {
	const allocations = "cadastre-allocations"
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{}
	policy := &admissionv1.ValidatingAdmissionPolicy{}
	rights := &rbacv1.ClusterRoleBinding{}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	fields := func() map[string]apiextensionsv1.JSONSchemaProps {
		return definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties
	}
	pool := &v1alpha1.IPPool{}
	return []harm{
		{"the binding of a policy is deleted", w.removed(binding, allocations), "policy/cadastre-allocations", installation.ResultFailed},
		{"the binding only audits", w.changed(binding, "", allocations, func() {
			binding.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Audit}
		}), "policy/cadastre-allocations", installation.ResultFailed},
		{"the binding leaves namespaces out", w.changed(binding, "", allocations, func() {
			binding.Spec.MatchResources = &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}
		}), "policy/cadastre-allocations", installation.ResultFailed},
		{"a policy lets another user through", w.changed(policy, "", "cadastre-filled-in", func() {
			policy.Spec.MatchConditions[0].Expression += " && request.userInfo.username != 'eve'"
		}), "policy/cadastre-filled-in", installation.ResultFailed},
		{"a policy ignores failures", w.changed(policy, "", "cadastre-filled-in", func() {
			policy.Spec.FailurePolicy = new(admissionv1.Ignore)
		}), "policy/cadastre-filled-in", installation.ResultFailed},
		{"a policy is deleted", w.removed(policy, "cadastre-filled-in"), "policy/cadastre-filled-in", installation.ResultFailed},
		{"a CRD lacks a field", w.changed(definition, "", "ippools.ipam.cadastre.dev", func() { delete(fields(), "reuseDelay") }), "crd/ippools", installation.ResultFailed},
		{"a CRD has a field that this client does not know", w.changed(definition, "", "ipclasses.ipam.cadastre.dev", func() {
			fields()["flavor"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
		}), "crd/ipclasses", installation.ResultWarning},
		{"a CRD has another rule", w.changed(definition, "", "ipclasses.ipam.cadastre.dev", func() {
			longer := fields()["provisioner"]
			longer.MaxLength = new(int64(100))
			fields()["provisioner"] = longer
		}), "crd/ipclasses", installation.ResultWarning},
		{"the operator lacks rights", w.changed(rights, "", "cadastre-manager", func() { rights.Subjects[0].Namespace = "elsewhere" }), "rights/operator", installation.ResultFailed},
		{"the operator has no priority level", w.removed(&flowcontrolv1.FlowSchema{}, "cadastre"), "flowcontrol", installation.ResultWarning},
		{"no pool backs the default class", w.changed(pool, "", "p", func() { pool.Spec.ClassNames = nil }), "trial/claim", installation.ResultWarning},
		{"the Deployment has no replica that is available", w.deployed(2, 0), "deployment", installation.ResultFailed},
		{"the Deployment has one of two", w.deployed(2, 1), "deployment", installation.ResultWarning},
		{"the Deployment has all", w.deployed(2, 2), "deployment", installation.ResultOK},
	}
}

func (w *world) harmsWhileItIsDown() []harm {
	const name = manifests.MutatingWebhooks
	mutating, secret := &admissionv1.MutatingWebhookConfiguration{}, &corev1.Secret{}
	harmed := func(change func(*admissionv1.MutatingWebhook)) func() func() {
		return w.changed(mutating, "", name, func() { change(&mutating.Webhooks[2]) })
	}
	return []harm{
		{"a failure policy is another one", harmed(func(h *admissionv1.MutatingWebhook) {
			h.FailurePolicy = new(admissionv1.Fail)
		}), "webhooks/mutating", installation.ResultFailed},
		{"a webhook leaves namespaces out", harmed(func(h *admissionv1.MutatingWebhook) {
			h.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		}), "webhooks/mutating", installation.ResultFailed},
		{"the caBundle of a webhook is another one", harmed(func(h *admissionv1.MutatingWebhook) {
			h.ClientConfig.CABundle = append(h.ClientConfig.CABundle, '\n')
		}), "webhooks/trust", installation.ResultFailed},
		{"the path of a webhook is missing", harmed(func(h *admissionv1.MutatingWebhook) { h.ClientConfig.Service.Path = nil }), "webhooks/trust", installation.ResultFailed},
		{"a webhook of Clusters selects all objects", w.changed(mutating, "", manifests.ClusterWebhooks, func() {
			mutating.Webhooks[0].ObjectSelector = nil
		}), "webhooks/cluster", installation.ResultFailed},
		{"the Secret has another certificate", w.changed(secret, cluster.Namespace, "cadastre-webhook-server-cert", func() {
			secret.Data["tls.crt"] = []byte("none")
		}), "certificate", installation.ResultFailed},
		{"a webhook is gone", w.changed(mutating, "", name, func() { mutating.Webhooks = mutating.Webhooks[1:] }), "webhooks/mutating", installation.ResultFailed},
		{"a configuration is gone", w.removed(&admissionv1.ValidatingWebhookConfiguration{}, "cadastre-validating-webhook-configuration"), "webhooks/validating", installation.ResultFailed},
		{"the Service is gone", w.removed(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace}}, "cadastre-webhook-service"), "webhooks/service", installation.ResultFailed},
	}
}

// changed changes an object. Its repair writes the former state.
func (w *world) changed(obj client.Object, namespace, name string, change func()) func() func() {
	return func() func() {
		w.Helper()
		var before client.Object
		w.updated(obj, namespace, name, func() client.Object {
			before = obj.DeepCopyObject().(client.Object)
			change()
			return obj
		})
		return func() {
			w.updated(obj, namespace, name, func() client.Object {
				before.SetResourceVersion(obj.GetResourceVersion())
				return before
			})
		}
	}
}

// updated reads an object and writes the one that edit returns, although others write it, too.
func (w *world) updated(obj client.Object, namespace, name string, edit func() client.Object) {
	w.Helper()
	suite.Must(w, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := w.Get(w.Context(), client.ObjectKey{Namespace: namespace, Name: name}, obj); err != nil {
			return err
		}
		return w.Update(w.Context(), edit())
	}))
}

// removed deletes an object, cluster-scoped if not stated otherwise, and waits until it is gone. Its
// repair applies the manifests.
func (w *world) removed(obj client.Object, name string) func() func() {
	return func() func() {
		w.Helper()
		obj.SetName(name)
		w.Deleted(obj)
		w.Gone(obj)
		return func() { suite.Must(w, w.Reinstall(w.Context())) }
	}
}

// deployed writes the number of replicas into the status of the operator's Deployment: no kubelet
// runs here.
func (w *world) deployed(want, available int32) func() func() {
	labels := map[string]string{"app.kubernetes.io/name": "cadastre", "control-plane": "controller-manager"}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: cluster.ServiceAccount, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &want, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "manager", Image: "registry.example/cadastre:v0.1.0"}}},
			},
		},
	}
	return func() func() {
		w.Helper()
		w.Created(deployment)
		deployment.Status = appsv1.DeploymentStatus{ObservedGeneration: deployment.Generation, Replicas: want, UpdatedReplicas: want, ReadyReplicas: available, AvailableReplicas: available}
		suite.Must(w, w.Status().Update(w.Context(), deployment))
		return func() {
			w.Deleted(deployment)
			w.Gone(deployment)
			deployment.ResourceVersion, deployment.UID = "", ""
		}
	}
}

// quietly runs a command line without adding it to the transcript.
func (r *terminal) quietly(line string) *ran {
	r.t.Helper()
	before := r.script.Len()
	ran := r.runs(line)
	r.script.Truncate(before)
	return ran
}
