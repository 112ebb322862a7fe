package ui

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/edit"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/explain"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/view"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// uiCommands implements the commands that the page calls.
type uiCommands struct {
	*command.Env
	k8s client.WithWatch
}

var _ Commands = &uiCommands{}

// Who implements ui.Commands.
func (u *uiCommands) Who(ctx context.Context, r *register.Register, text string) (any, error) {
	asked, err := view.ParseAsked(text)
	if err != nil {
		return nil, command.Coded(command.ExitUsage, err)
	}
	report := view.NewWhoReport(r, asked, view.MostBlocks)
	if len(report.Places) == 0 {
		return nil, command.Coded(command.ExitNotFound, fmt.Errorf("%s lies in no pool that you may read", view.Bare(asked)))
	}
	report.AddOwners(ctx, command.NewOwners(u.k8s))
	return report, ctx.Err()
}

// Explain implements ui.Commands.
func (u *uiCommands) Explain(ctx context.Context, r *register.Register, claim Claim) (any, error) {
	question, err := explain.FindQuestion(ctx, u.k8s, claim.Namespace, claim.Kind+"/"+claim.Name)
	if err != nil {
		return nil, err
	}
	knowledge := &explain.Knowledge{Register: r, Namespace: claim.Namespace}
	if err := knowledge.Read(ctx, u.k8s); err != nil {
		return nil, err
	}
	defer knowledge.Close()
	return &explainedClaim{explain.Explanation(ctx, question, knowledge), question.Obj.GetUID()}, nil
}

// explainedClaim holds a report and the UID of the claim, which a release of the claim must name.
type explainedClaim struct {
	*explain.Report
	UID types.UID `json:"uid"`
}

// Free implements ui.Commands.
func (u *uiCommands) Free(ctx context.Context, r *register.Register, request FreeOf) (any, error) {
	options := view.FreeOptions{Length: request.Length, Count: request.Count}
	pool := r.Pool(request.Pool)
	if pool != nil && pool.IsKnown() {
		return view.NewFreeReport(pool, options)
	}
	if request.Pool.Kind != ipam.PoolKindIPPool || !r.Lacks("ippools") {
		return nil, view.NoPool(request.Pool.Namespace, request.Pool.Name)
	}
	namespace, err := u.Namespace()
	if err != nil {
		return nil, err
	}
	return view.DryRunReport(ctx, u.k8s, namespace, request.Pool, options)
}

// Create implements ui.Commands.
func (u *uiCommands) Create(ctx context.Context, request ClaimRequest) (any, error) {
	claim := &v1alpha1.IPClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: request.Namespace, Name: request.Name},
		Spec:       v1alpha1.IPClaimSpec{ClassName: request.Class, CIDR: command.AsBlock(request.CIDR), PrefixLength: request.Length},
	}
	if request.Name == "" {
		claim.GenerateName = "claim-"
	}
	if request.Pool != "" {
		key, err := PoolOf(request.Pool)
		if err != nil {
			return nil, err
		}
		if key.Namespace != "" && key.Namespace != request.Namespace {
			return nil, command.Coded(command.ExitUsage, fmt.Errorf("%s serves only claims of its namespace: make the claim in namespace %s", request.Pool, key.Namespace))
		}
		claim.Spec.PoolRef = convert.PoolReference(key)
	}
	if err := u.k8s.Create(ctx, claim); err != nil {
		return nil, err
	}
	return &command.Object{Object: claim}, nil
}

// Release implements ui.Commands.
func (u *uiCommands) Release(ctx context.Context, namespace, name, uid string) (any, error) {
	claim := &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := command.Get(ctx, u.k8s, claim); err != nil {
		return nil, err
	}
	if string(claim.UID) != uid {
		return nil, command.Coded(command.ExitConflict, fmt.Errorf("IPClaim %s/%s is another one than you have seen: look again at its block", namespace, name))
	}
	releasing := edit.NewReleasing(u.Env, u.k8s)
	report := releasing.Describe(ctx, claim)
	if err := releasing.Delete(ctx, report); err != nil {
		return nil, err
	}
	return report, nil
}

// mostOwnersRead bounds the number of owners that are read to find the claims of a machine.
const mostOwnersRead = 2000

// MachineReport holds the claims of a Machine of Cluster API.
type MachineReport struct {
	metav1.TypeMeta `json:",inline"`
	Machine         string `json:"machine"`
	// Claims are the IPAddressClaims that the Machine owns, itself or through objects that it
	// owns.
	Claims []MachineClaim `json:"claims"`
	// Omitted is the number of IPAddressClaims that were not examined, because there are too many.
	Omitted int `json:"omitted,omitempty"`
}

// MachineClaim names a claim of a Machine.
type MachineClaim struct {
	Kind      string            `json:"kind"`
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	Machine   command.ObjectRef `json:"machine"`
}

// Machine implements ui.Commands. It first examines the claims whose name contains the name of the
// Machine, or with an owner of that name.
func (u *uiCommands) Machine(ctx context.Context, name string) (any, error) {
	report := &MachineReport{TypeMeta: command.ReportType("MachineReport"), Machine: name, Claims: []MachineClaim{}}
	claims, err := u.addressClaims(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(claims, func(a, b ipamv1.IPAddressClaim) int { return likeness(&b, name) - likeness(&a, name) })
	found := command.NewOwners(u.k8s)
	for i := range claims {
		if len(found.Read) > mostOwnersRead {
			report.Omitted = len(claims) - i
			break
		}
		claim := command.RefOfHolder(convert.HolderOfAddressClaim(ipam.Name{Namespace: claims[i].Namespace, Name: claims[i].Name}))
		found.Read[claim] = command.OwnersOf(&claims[i]) // it has been read
		for _, owner := range found.Above(ctx, claim) {
			if owner.IsMachine() && owner.Name == name {
				report.Claims = append(report.Claims, MachineClaim{Kind: claim.Kind, Namespace: claim.Namespace, Name: claim.Name, Machine: owner})
			}
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return report, nil
}

// addressClaims returns the claims that the caller can list; none if Cluster API is not installed.
func (u *uiCommands) addressClaims(ctx context.Context) ([]ipamv1.IPAddressClaim, error) {
	namespace, err := u.Namespace()
	if err != nil {
		return nil, err
	}
	list := &ipamv1.IPAddressClaimList{}
	err = u.k8s.List(ctx, list)
	if apierrors.IsForbidden(err) {
		err = u.k8s.List(ctx, list, client.InNamespace(namespace))
	}
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil, nil
	}
	return list.Items, err
}

// likeness rates by the names alone how much a claim looks like a claim of a machine.
func likeness(claim *ipamv1.IPAddressClaim, machine string) int {
	for _, owner := range claim.OwnerReferences {
		if owner.Name == machine {
			return 2
		}
	}
	if strings.Contains(claim.Name, machine) {
		return 1
	}
	return 0
}
