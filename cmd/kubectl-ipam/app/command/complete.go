package command

import (
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Completion represents a function that lists the values that the shell can offer for a word.
type Completion = func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective)

// Complete registers the values that the shell offers for a flag.
func Complete(cmd *cobra.Command, flag string, values ...string) {
	CompleteWith(cmd, flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// CompleteWith registers the completion of the values of a flag.
func CompleteWith(cmd *cobra.Command, flag string, list Completion) {
	utilruntime.Must(cmd.RegisterFlagCompletionFunc(flag, list))
}

func (e *Env) completeNamespaces(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return e.Names(cmd, &corev1.NamespaceList{})
}

// First returns a completion that offers the names of objects for the first argument, and nothing
// for others.
func (e *Env) First(lists ...client.ObjectList) Completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return e.Names(cmd, lists...)
	}
}

// CompleteNames returns a completion that offers the names of objects.
func (e *Env) CompleteNames(lists ...client.ObjectList) Completion {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return e.Names(cmd, lists...)
	}
}

// Names returns the names of objects in the namespace, and of cluster-scoped objects. It leaves
// out objects that cannot be listed.
func (e *Env) Names(cmd *cobra.Command, lists ...client.ObjectList) ([]string, cobra.ShellCompDirective) {
	c, err := e.Client()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	namespace, err := e.Namespace()
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
