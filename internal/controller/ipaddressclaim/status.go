package ipaddressclaim

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

// applyResult sets the condition Ready from the error of a pass, and status.addressRef together
// with it (contract, "Normal IPAddressClaim" 6). No other code decides the effect of an error on a
// claim. The returned error is for the work queue, which retries with back-off.
func (c *Controller) applyResult(s *scope, err error) error {
	ready := metav1.Condition{Type: ipamv1.IPAddressClaimReadyCondition, Status: metav1.ConditionFalse}
	var retry error
	switch ready.Reason, ready.Message, retry = c.reason(s, err); {
	case ready.Reason == "":
		return retry
	case err == nil:
		if ready.Reason == v1alpha1.ReasonAddressAllocated {
			ready.Status = metav1.ConditionTrue
		}
		s.claim.Status.AddressRef.Name = s.address.Name
	}
	conditions.Set(s.claim, ready)
	return kubeutil.Reported(retry)
}

// retry returns the error with which the work queue retries the claim, or nil.
func (c *Controller) retry(s *scope, err error) error {
	if err == nil {
		return nil
	}
	_, _, retry := c.reason(s, err)
	return retry
}

// reason returns the reason and message of the condition for an error, and the error for a retry.
// An empty reason leaves the condition as it is.
func (c *Controller) reason(s *scope, err error) (reason, message string, retry error) {
	unserved, isUnserved := errors.AsType[ipam.Unserved](err)
	switch {
	case err == nil:
		reason, message = c.heldReason(s)
		return reason, message, nil
	case errors.Is(err, errNotSeen):
		return "", "", err
	case kubeutil.IsNamespaceTerminating(err):
		return "", "", nil
	case apierrors.IsConflict(err): // there is a newer version
		return "", "", err
	case isUnserved:
		reason, message, retry = c.unservedReason(s, unserved, err)
		return reason, withPoolReasons(message, err), retry
	case queue.IsRefused(err) && !apierrors.IsNotFound(err):
		return v1alpha1.ReasonRecordRefused, refusal(s, err), err
	default:
		return "", "", err
	}
}

// unservedReason returns the reason and message of the condition for a request that is not served,
// with the reasons of the contract if it has one.
func (c *Controller) unservedReason(s *scope, unserved ipam.Unserved, err error) (reason, message string, retry error) {
	reason, message = unserved.Condition(ipam.Wording{
		Policy: ipamv1.IPAddressClaimReadyAllocationFailedReason, Exhausted: ipamv1.IPAddressClaimReadyPoolExhaustedReason, Limit: v1alpha1.ReasonLimitReached,
		Provisioner: ipamv1.IPAddressClaimReadyPoolExhaustedReason,
		IfExhausted: "the claim is served as soon as one is released",
	})
	switch unserved := unserved.(type) {
	case *ipam.TakenError:
		return c.takenReason(s, unserved, err)
	case *ipam.LimitError: // of an IPAddress that exists already
		retry = err
	case *ipam.ParkedError:
		retry = unserved.Cause
	case *ipam.MissingError:
		if reason != v1alpha1.ReasonPoolNotFound {
			reason = ipamv1.IPAddressClaimReadyPoolNotReadyReason
		}
	}
	return reason, message, retry
}

// withPoolReasons adds to a message why the claim is not served from each pool that it can use, if there
// are several: the claim's status has no field for that.
func withPoolReasons(message string, err error) string {
	if reasons := convert.CandidateReasons(ipam.PoolsOf(err)); message != "" && reasons != "" {
		return message + " (" + reasons + ")"
	}
	return message
}

// refusal returns the message of the condition if the API server refuses an object that belongs to
// a held record: such as the IPAddress, by a quota.
func refusal(s *scope, err error) string {
	if s.record.UID == "" {
		return fmt.Sprintf("%s: remove the cause; it is tried again by itself", kubeutil.StableText(err))
	}
	return fmt.Sprintf("%s of %s is held for this claim, but %s: remove the cause; it is tried again by itself", s.record.Block, s.record.Pool, kubeutil.StableText(err))
}

// heldReason returns the reason and message of the condition for a held address: that it is held,
// or that another record overlaps it.
func (c *Controller) heldReason(s *scope) (reason, message string) {
	if taken := c.Ledger.Conflict(s.record); taken != nil {
		return ipamv1.IPAddressClaimReadyAllocationFailedReason, "conflict: " + c.conflict(s, taken) + ": have one of the two released"
	}
	return v1alpha1.ReasonAddressAllocated, fmt.Sprintf("%s of %s is held for this claim", s.record.Block, s.record.Pool)
}

// takenReason returns the reason and message of the condition if the requested address is taken.
func (c *Controller) takenReason(s *scope, taken *ipam.TakenError, err error) (reason, message string, retry error) {
	failed := ipamv1.IPAddressClaimReadyAllocationFailedReason
	switch {
	case taken.Holder == s.holder():
		return "", "", err // our own record, which is about to be seen or removed
	case s.address == nil && taken.IsWithheld():
		return failed, fmt.Sprintf(
			"%s is never handed out by %s: it is reserved, a gateway or edge address, or outside its ranges: ask for another address", taken.Block, taken.Pool), nil
	case s.address == nil:
		return failed, c.conflict(s, taken) + ": ask its holder to release it, or ask for another address; the claim is served as soon as it is released", nil
	}
	return failed, "conflict: " + c.conflict(s, taken) + ": delete this claim and make a new one, or have the other released", err
}

// conflict returns a message about the other block. It names the holder only to a namespace that
// can know it.
func (c *Controller) conflict(s *scope, taken *ipam.TakenError) string {
	return c.Catalog.Redact(s.name.Namespace, taken).Error()
}

// writeStatus writes the status if it changed, in one patch.
func (c *Controller) writeStatus(ctx context.Context, before, claim *ipamv1.IPAddressClaim) (isWritten bool, err error) {
	if equality.Semantic.DeepEqual(before.Status, claim.Status) {
		return false, nil
	}
	base := claim.DeepCopy()
	base.Status = before.Status
	err = c.Client.Status().Patch(ctx, claim, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return false, kubeutil.IgnoreNotFound(fmt.Errorf("writing status: %w", err))
	}
	return true, nil
}

// reportRefusal writes into a claim that is being deleted the change that the API server refuses for
// it. Other errors have no reason, and leave the condition as it is.
func (c *Controller) reportRefusal(ctx context.Context, s *scope, err error) error {
	if err == nil {
		return nil
	}
	before := s.claim.DeepCopy()
	retry := c.applyResult(s, err)
	return cmp.Or(c.writeStatusAndEvent(ctx, before, s.claim), retry)
}

// writeStatusAndEvent writes the status, and makes an event of its change.
func (c *Controller) writeStatusAndEvent(ctx context.Context, before, claim *ipamv1.IPAddressClaim) error {
	isWritten, err := c.writeStatus(ctx, before, claim)
	if isWritten {
		c.recordEvent(ctx, before, claim)
	}
	return err
}

// recordEvent makes an event of a change of the condition's reason, but not of a claim that is
// served at once: its condition reports the same, and an event would be one more write.
func (c *Controller) recordEvent(ctx context.Context, before, claim *ipamv1.IPAddressClaim) {
	previous, ready := conditions.Get(before, ipamv1.IPAddressClaimReadyCondition), conditions.Get(claim, ipamv1.IPAddressClaimReadyCondition)
	if ready == nil || previous != nil && previous.Reason == ready.Reason {
		return
	}
	log.FromContext(ctx).V(1).Info("The status of a claim changed", "claim", convert.HolderOfAddressClaim(nameOf(claim)).String(), "reason", ready.Reason, "message", ready.Message)
	if previous == nil && ready.Status == metav1.ConditionTrue {
		return
	}
	eventType := corev1.EventTypeWarning
	if ready.Status == metav1.ConditionTrue {
		eventType = corev1.EventTypeNormal
	}
	c.Events.Eventf(claim, nil, eventType, ready.Reason, "Allocate", "%s", ready.Message)
}
