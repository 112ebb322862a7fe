package command

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Explained returns an error as a person reads it. It shows the answer of the API server without
// the name of the webhook that gave it, each wrong field on a separate line if there are several,
// and with a remedy if the answer has none.
func Explained(err error) string {
	text := err.Error()
	if meta.IsNoMatchError(err) {
		return text + ": install Cadastre in this cluster, or choose another one with --context"
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return text
	}
	return strings.Replace(text, status.Status().Message, describe(status.Status()), 1)
}

// describe returns the message of a status.
func describe(status metav1.Status) string {
	message := regexp.MustCompile(`^admission webhook "[^"]*" denied the request: `).ReplaceAllString(status.Message, "")
	switch {
	case status.Reason == metav1.StatusReasonInvalid && status.Details != nil && len(status.Details.Causes) > 1:
		lines := []string{fmt.Sprintf("%s %s is invalid:", status.Details.Kind, status.Details.Name)}
		for _, cause := range status.Details.Causes {
			lines = append(lines, fmt.Sprintf("  %s: %s", cause.Field, cause.Message))
		}
		return strings.Join(lines, "\n")
	case status.Reason == metav1.StatusReasonForbidden && regexp.MustCompile(`cannot \w+ resource`).MatchString(message):
		return message + ": ask for the right to do so"
	case status.Reason == metav1.StatusReasonAlreadyExists:
		return message + ": choose another name, or delete the other one first"
	}
	return message
}

// Get reads an object. If there is none, the error names a remedy.
func Get(ctx context.Context, c client.Client, obj client.Object) error {
	err := c.Get(ctx, client.ObjectKeyFromObject(obj), obj)
	if !apierrors.IsNotFound(err) {
		return err
	}
	return NotFound(c, obj)
}

// NotFound returns the error of an object that does not exist, with ExitNotFound.
func NotFound(c client.Client, obj client.Object) error {
	kind := kindOf(c, obj)
	where := ""
	if obj.GetNamespace() != "" {
		where = " in namespace " + obj.GetNamespace()
	}
	return Coded(ExitNotFound, fmt.Errorf("%s %s: there is none of that name%s: see kubectl get %s%s",
		kind.Kind, obj.GetName(), where, strings.ToLower(kind.Kind), InNamespace(obj)))
}

// InNamespace returns the flag of kubectl for the namespace of an object.
func InNamespace(obj client.Object) string {
	if obj.GetNamespace() == "" {
		return ""
	}
	return " -n " + obj.GetNamespace()
}

func kindOf(c client.Client, obj client.Object) schema.GroupVersionKind {
	kind, err := apiutil.GVKForObject(obj, c.Scheme())
	if err != nil { // it is not an API type of ours
		return schema.GroupVersionKind{Kind: fmt.Sprintf("%T", obj)}
	}
	return kind
}
