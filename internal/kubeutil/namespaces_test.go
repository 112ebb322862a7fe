package kubeutil

import (
	"context"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestOnlyRequestsOfServedNamespacesPass(t *testing.T) {
	for name, test := range map[string]struct {
		namespaces Namespaces
		pass       []string
	}{
		"all of them when none is named":       {NamespacesOf(""), []string{"", "a", "b", "c"}},
		"objects in one namespace, or in none": {NamespacesOf("", "b"), []string{"", "b"}},
		"objects in one of two namespaces":     {NamespacesOf("a", "c"), []string{"", "a", "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			var passed []string
			limited := test.namespaces.Limit(reconcile.Func(func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
				passed = append(passed, req.Namespace)
				return reconcile.Result{}, nil
			}))
			for _, namespace := range []string{"", "a", "b", "c"} {
				req := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: "x"}}
				if _, err := limited.Reconcile(t.Context(), req); err != nil {
					t.Fatal(err)
				}
			}
			if !slices.Equal(passed, test.pass) {
				t.Errorf("requests of namespaces %q pass, want %q", passed, test.pass)
			}
		})
	}
}
