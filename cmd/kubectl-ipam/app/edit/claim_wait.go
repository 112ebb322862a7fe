package edit

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
)

func isBound(claim *v1alpha1.IPClaim) bool { return claim.Status.Phase == v1alpha1.ClaimBound }

// await watches a claim until it has its block. The claim stays in every case.
func (c *claiming) await(ctx context.Context, claim *v1alpha1.IPClaim) (*v1alpha1.IPClaim, error) {
	c.Note("%s; waiting for %s at most", whyWaiting(claim, "waits"), c.wait.AtMost)
	last := claim
	watched := &command.Awaited[*v1alpha1.IPClaim]{
		Client: c.client, Named: claim.DeepCopy(), List: &v1alpha1.IPClaimList{},
		Until: func(seen *v1alpha1.IPClaim) (bool, error) {
			last = seen.DeepCopy()
			return isBound(seen), nil
		},
		Gone: func() error {
			return command.Coded(command.ExitNotFound, fmt.Errorf("IPClaim %s was deleted while it waited: run the command again to ask anew", claim.Name))
		},
	}
	err := watched.Wait(ctx, c.wait.AtMost)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return last, command.Coded(command.ExitTimedOut, fmt.Errorf("%s\n%s", whyWaiting(last, "stays, and waits still after "+c.wait.AtMost.String()), whatNow(last)))
	case errors.Is(err, command.ErrInterrupted):
		return last, fmt.Errorf("interrupted: %s\n%s", whyWaiting(last, "stays and waits"), whatNow(last))
	}
	return last, err
}

// waits returns the error of a claim that is stored and has no block; nil if it has one.
func (c *claiming) waits(claim *v1alpha1.IPClaim) error {
	if isBound(claim) {
		return nil
	}
	if *c.dryRun == command.DryRunServer {
		return command.Coded(codeOfReason(readyReason(claim)), fmt.Errorf("the claim would wait: %s", readyMessage(claim)))
	}
	return command.Coded(codeOfReason(readyReason(claim)), fmt.Errorf("%s\n%s", whyWaiting(claim, "is stored and waits"), whatNow(claim)))
}

// whatNow lists the commands for a claim that waits, one per line.
func whatNow(claim *v1alpha1.IPClaim) string {
	of := claim.Name + command.InNamespace(claim)
	return "  see why:      kubectl ipam explain " + of +
		"\n  wait for it:  kubectl wait --for=condition=Ready --timeout=10m ipclaim " + of +
		"\n  give it up:   kubectl ipam release ipclaim/" + of
}

// whyWaiting explains why a claim that does this, such as wait, has no block.
func whyWaiting(claim *v1alpha1.IPClaim, does string) string {
	return fmt.Sprintf("IPClaim %s %s (%s): %s", claim.Name, does, readyReason(claim), readyMessage(claim))
}

func readyReason(claim *v1alpha1.IPClaim) string {
	if ready := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		return ready.Reason
	}
	return "NoAnswer"
}

func readyMessage(claim *v1alpha1.IPClaim) string {
	if ready := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		return ready.Message
	}
	return "no operator has answered it: see whether Cadastre runs"
}

// codeOfReason returns the exit code for a claim that waits for a reason.
func codeOfReason(reason string) command.ExitCode {
	switch reason {
	case v1alpha1.ReasonClassNotFound, v1alpha1.ReasonNoDefaultClass, v1alpha1.ReasonPoolNotFound, v1alpha1.ReasonNoPoolForClass, v1alpha1.ReasonClusterNotFound:
		return command.ExitNotFound
	case v1alpha1.ReasonConflict:
		return command.ExitConflict
	case v1alpha1.ReasonLimitReached, v1alpha1.ReasonTooManyWaiting:
		return command.ExitLimit
	case v1alpha1.ReasonPolicyViolation:
		return command.ExitUsage
	case v1alpha1.ReasonRecordRefused:
		return command.ExitForbidden
	case v1alpha1.ReasonPoolExhausted, v1alpha1.ReasonCannotFit, v1alpha1.ReasonPoolNotReady:
		return command.ExitExhausted
	default:
		return command.ExitError
	}
}
