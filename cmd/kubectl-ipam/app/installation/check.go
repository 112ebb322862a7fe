package installation

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Result represents the outcome of a check.
type Result string

// The outcomes of a check.
const (
	// ResultOK means that everything is as it should be.
	ResultOK Result = "ok"
	// ResultWarning means that it works, and should be otherwise.
	ResultWarning Result = "warning"
	// ResultFailed means that something does not work, or is not protected.
	ResultFailed Result = "failed"
	// ResultSkipped means that it was not checked, because the caller cannot read it or because it
	// does not exist.
	ResultSkipped Result = "skipped"
)

// Check holds the outcome of one check.
type Check struct {
	Name   string `json:"name"`
	Result Result `json:"result"`
	// Message describes the findings.
	Message string `json:"message"`
	// Remedy describes the recommended action.
	Remedy string `json:"remedy,omitempty"`
}

func ok(name, format string, args ...any) Check {
	return Check{Name: name, Result: ResultOK, Message: fmt.Sprintf(format, args...)}
}

func failed(name, remedy, format string, args ...any) Check {
	return Check{Name: name, Result: ResultFailed, Message: fmt.Sprintf(format, args...), Remedy: remedy}
}

func warned(name, remedy, format string, args ...any) Check {
	return Check{Name: name, Result: ResultWarning, Message: fmt.Sprintf(format, args...), Remedy: remedy}
}

func skipped(name, format string, args ...any) Check {
	return Check{Name: name, Result: ResultSkipped, Message: fmt.Sprintf(format, args...)}
}

// unread returns the check of an object that could not be read.
func unread(name, what string, err error) Check {
	if apierrors.IsForbidden(err) {
		return skipped(name, "you may not read %s", what)
	}
	return failed(name, "try again", "reading %s: %v", what, err)
}

// Doctor checks an installation, with the rights of its caller.
type Doctor struct {
	Client client.Client
	// Namespace is the namespace in which the caller would create a claim.
	Namespace string
	// Operator is the operator's namespace.
	Operator string
	// ServiceAccount is the name of the operator's service account.
	ServiceAccount string
	// Version is the version of the caller's program.
	Version string
	// Now is the API server's time.
	Now func() time.Time
}

// Run makes all checks.
func (d *Doctor) Run(ctx context.Context) []Check {
	var all []Check
	for _, checks := range []func(context.Context) []Check{
		d.definitions, d.webhooks, d.certificates, d.policies, d.replicas, d.versions,
		d.operatorRights, d.ownRights, d.flowControl, d.surroundings, d.trial,
	} {
		all = append(all, checks(ctx)...)
	}
	return all
}

// remedyManifests is the remedy if an installed object is not as it is shipped.
const remedyManifests = "apply the manifests of the operator's version again"
