package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/terminal"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/ui"
	"github.com/cadastre-dev/cadastre/internal/adapt"
)

// uiCommands are the commands that the page asks.
type uiCommands struct {
	*env
	k8s client.WithWatch
}

var _ ui.Commands = &uiCommands{}

// Who implements ui.Commands.
func (u *uiCommands) Who(ctx context.Context, r *register.Register, text string) (any, error) {
	asked, err := parseAsked(text)
	if err != nil {
		return nil, coded(ExitUsage, err)
	}
	report := whoReport(r, asked, mostBlocks)
	if len(report.Places) == 0 {
		return nil, coded(ExitNotFound, fmt.Errorf("%s lies in no pool that you may read", bare(asked)))
	}
	report.addOwners(ctx, newOwners(u.k8s))
	return report, ctx.Err()
}

// Explain implements ui.Commands.
func (u *uiCommands) Explain(ctx context.Context, r *register.Register, claim ui.Claim) (any, error) {
	asked, err := findQuestion(ctx, u.k8s, claim.Namespace, claim.Kind+"/"+claim.Name)
	if err != nil {
		return nil, err
	}
	known := &knowledge{register: r, namespace: claim.Namespace}
	if err := known.read(ctx, u.k8s); err != nil {
		return nil, err
	}
	defer known.close()
	return &explainedClaim{explanation(ctx, asked, known), asked.obj.GetUID()}, nil
}

// explainedClaim is a report with the UID of the claim, which its release has to name.
type explainedClaim struct {
	*ExplainReport
	UID types.UID `json:"uid"`
}

// Free implements ui.Commands.
func (u *uiCommands) Free(ctx context.Context, r *register.Register, of ui.FreeOf) (any, error) {
	options := freeOptions{length: of.Length, count: of.Count}
	pool := r.Pool(of.Pool)
	if pool != nil && pool.IsKnown() {
		return freeReport(pool, options)
	}
	if of.Pool.Namespace != "" || !r.Lacks("ippools") {
		return nil, noPool(of.Pool.Namespace, of.Pool.Name)
	}
	namespace, err := u.namespace()
	if err != nil {
		return nil, err
	}
	return dryRunReport(ctx, u.k8s, namespace, of.Pool, options)
}

// Create implements ui.Commands.
func (u *uiCommands) Create(ctx context.Context, request ui.ClaimRequest) (any, error) {
	claim := &v1alpha1.IPClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: request.Namespace, Name: request.Name},
		Spec:       v1alpha1.IPClaimSpec{ClassName: request.Class, CIDR: asBlock(request.CIDR), PrefixLength: request.Length},
	}
	if request.Name == "" {
		claim.GenerateName = "claim-"
	}
	if request.Pool != "" {
		key, err := ui.PoolOf(request.Pool)
		if err != nil {
			return nil, err
		}
		if key.Namespace != "" && key.Namespace != request.Namespace {
			return nil, coded(ExitUsage, fmt.Errorf("%s serves claims of its own namespace alone: make the claim in namespace %s", request.Pool, key.Namespace))
		}
		claim.Spec.PoolRef = adapt.PoolReference(key)
	}
	if err := u.k8s.Create(ctx, claim); err != nil {
		return nil, err
	}
	return newObject(claim, nil)
}

// Release implements ui.Commands.
func (u *uiCommands) Release(ctx context.Context, namespace, name, uid string) (any, error) {
	claim := &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := get(ctx, u.k8s, claim); err != nil {
		return nil, err
	}
	if string(claim.UID) != uid {
		return nil, coded(ExitConflict, fmt.Errorf("IPClaim %s/%s is another one than you have seen: look again at what it holds", namespace, name))
	}
	none := dryRunNone
	releasing := &releasing{env: u.env, client: u.k8s, dryRun: &none}
	held := releasing.claim(ctx, claim)
	if err := releasing.delete(ctx, held); err != nil {
		return nil, err
	}
	return held.report, nil
}

// Explained implements ui.Commands.
func (u *uiCommands) Explained(err error) (message string, exitCode, status int) {
	code := codeOf(err)
	return terminal.PrintableLines(explained(err)), int(code), statusOf(err, code)
}

// statusOf is the code of HTTP that says the same as an error: that of the API server, but
// where it does not know the caller, whom the server of the page does know.
func statusOf(err error, code ExitCode) int {
	var answered apierrors.APIStatus
	if errors.As(err, &answered) && answered.Status().Code >= 400 && answered.Status().Code != http.StatusUnauthorized {
		return int(answered.Status().Code)
	}
	return cmp.Or(map[ExitCode]int{
		ExitUsage: http.StatusBadRequest, ExitExhausted: http.StatusInsufficientStorage, ExitNotFound: http.StatusNotFound,
		ExitForbidden: http.StatusForbidden, ExitConflict: http.StatusConflict, ExitLimit: http.StatusForbidden,
		ExitTimedOut: http.StatusGatewayTimeout,
	}[code], http.StatusInternalServerError)
}
