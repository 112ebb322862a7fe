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

// mostOwnersRead is how many owners are read at most to find the claims of a machine.
const mostOwnersRead = 2000

// MachineReport is the claims of a Machine of Cluster API.
type MachineReport struct {
	metav1.TypeMeta `json:",inline"`
	Machine         string `json:"machine"`
	// Claims are the IPAddressClaims that the Machine owns, itself or by what it owns.
	Claims []MachineClaim `json:"claims"`
	// Omitted is how many IPAddressClaims were not looked into, as there are too many.
	Omitted int `json:"omitted,omitempty"`
}

// MachineClaim is a claim of a Machine.
type MachineClaim struct {
	Kind      string            `json:"kind"`
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	Machine   command.ObjectRef `json:"machine"`
}

// Machine implements ui.Commands. Claims whose names, or those of whose owners, have that of
// the Machine in them are looked into first.
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

// addressClaims are those that may be listed; none where Cluster API is not there.
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

// likeness is how much a claim looks like one of a machine, by the names alone.
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
