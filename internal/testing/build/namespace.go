package build

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// Namespace returns a namespace that is its own project.
func Namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// NamespaceOf returns a namespace that belongs to a project.
func NamespaceOf(project, name string) *corev1.Namespace {
	namespace := Namespace(name)
	namespace.Labels = map[string]string{v1alpha1.LabelProject: project}
	return namespace
}
