package webhooks

import (
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/internal/observe/history"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
)

// refusals count what webhooks refuse, and write it into the history.
type refusals struct {
	metrics *metrics.Instruments
	history *history.Recorder
}

// of is a handler of which what it refuses is counted and written.
func (r refusals) of(handler admission.Handler) admission.Handler {
	return admission.HandlerFunc(func(ctx context.Context, req admission.Request) admission.Response {
		response := handler.Handle(ctx, req)
		if !response.Allowed {
			r.add(req, response)
		}
		return response
	})
}

func (r refusals) add(req admission.Request, response admission.Response) {
	result := metav1.Status{}
	if response.Result != nil {
		result = *response.Result
	}
	result.Code = codeOf(response)
	r.count(req.AdmissionRequest, response)
	if req.DryRun != nil && *req.DryRun { // nothing was to be done
		return
	}
	r.history.Refused(history.Refusal{
		Kind: req.Kind.Kind, Namespace: req.Namespace, Name: req.Name, Operation: string(req.Operation), Block: blockIn(req.Object.Raw),
		User: req.UserInfo.Username, Code: result.Code, Reason: string(result.Reason), Message: result.Message,
	})
}

func (r refusals) count(req admissionv1.AdmissionRequest, response admission.Response) {
	r.metrics.Refused(req.Resource.Resource, strings.ToLower(string(req.Operation)), codeOf(response))
}

// blockIn is the block, or the address, that an object asks for; not valid where it asks for
// none.
func blockIn(object []byte) netip.Prefix {
	var asks struct {
		Spec struct{ CIDR, Address string }
	}
	if len(object) > maxObjectBytes || json.Unmarshal(object, &asks) != nil { // it is refused for that
		return netip.Prefix{}
	}
	if block, err := netip.ParsePrefix(asks.Spec.CIDR); err == nil {
		return block.Masked()
	}
	if address, err := netip.ParseAddr(asks.Spec.Address); err == nil {
		return netip.PrefixFrom(address, address.BitLen())
	}
	return netip.Prefix{}
}

// codeOf is the HTTP status code of a refusal.
func codeOf(response admission.Response) int32 {
	if response.Result != nil && response.Result.Code != 0 {
		return response.Result.Code
	}
	return http.StatusForbidden // as the API server has it where none is given
}
