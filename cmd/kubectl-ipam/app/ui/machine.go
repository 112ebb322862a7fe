package ui

import (
	"context"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

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
