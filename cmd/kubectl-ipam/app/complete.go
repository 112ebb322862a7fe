package app

import (
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// completion lists what the shell may offer for a word.
type completion = func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective)

// complete has the shell offer values for a flag.
func complete(cmd *cobra.Command, flag string, values ...string) {
	completeWith(cmd, flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

func completeWith(cmd *cobra.Command, flag string, list completion) {
	utilruntime.Must(cmd.RegisterFlagCompletionFunc(flag, list))
}

func (e *env) completeNamespaces(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return e.names(cmd, &corev1.NamespaceList{})
}

// first offers the names of objects for the first argument, and nothing for others.
func (e *env) first(lists ...client.ObjectList) completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return e.names(cmd, lists...)
	}
}

// completeNames offers the names of objects.
func (e *env) completeNames(lists ...client.ObjectList) completion {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return e.names(cmd, lists...)
	}
}

// names are those of objects in the namespace, and of cluster-scoped ones. What cannot be
// listed is not offered.
func (e *env) names(cmd *cobra.Command, lists ...client.ObjectList) ([]string, cobra.ShellCompDirective) {
	c, err := e.client()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	namespace, err := e.namespace()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, list := range lists {
		list = list.DeepCopyObject().(client.ObjectList)
		if err := c.List(cmd.Context(), list, client.InNamespace(namespace)); err != nil {
			continue
		}
		utilruntime.Must(meta.EachListItem(list, func(obj runtime.Object) error {
			names = append(names, obj.(client.Object).GetName())
			return nil
		}))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
