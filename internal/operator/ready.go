package operator

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

// readyEvery is how often the checks are repeated until all pass.
const readyEvery = 20 * time.Millisecond

// check is one of those that readyz asks.
type check struct {
	name string
	run  healthz.Checker
}

// checks pass when blocks can be handed out.
func (op *operator) checks() []check {
	return []check{
		{"certificate", op.guard.certificate.Check},
		{"paths", op.guard.paths.Check},
		{"register", func(*http.Request) error { return op.Queue.Synced() }},
		{"webhooks", op.manager.GetWebhookServer().StartedChecker()},
	}
}

// addChecks has healthz and readyz answer.
func (op *operator) addChecks() error {
	errs := []error{op.manager.AddHealthzCheck("ping", healthz.Ping)}
	for _, c := range op.checks() {
		errs = append(errs, op.manager.AddReadyzCheck(c.name, c.run))
	}
	return errors.Join(errs...)
}

// notifyReady calls Options.Ready when all checks have passed in one pass.
func (op *operator) notifyReady(ctx context.Context) {
	if op.options.Ready == nil {
		return
	}
	failing := func(c check) bool { return c.run(nil) != nil } // none of them reads the request
	checks := op.checks()
	err := wait.PollUntilContextCancel(ctx, readyEvery, true, func(context.Context) (bool, error) {
		return !slices.ContainsFunc(checks, failing), nil
	})
	if err == nil {
		op.options.Ready()
	}
}
