package controller

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"example.com/example-provider/api/v1alpha1"
)

// ensureClaim returns the IPAddressClaim with the machine's name, and makes it if there is
// none. It is the machine's own if the machine controls it.
func (c *Controller) ensureClaim(ctx context.Context, machine *v1alpha1.ExampleMachine) (*ipamv1.IPAddressClaim, error) {
	key := client.ObjectKeyFromObject(machine)
	claim := &ipamv1.IPAddressClaim{}
	err := c.Get(ctx, key, claim)
	if !apierrors.IsNotFound(err) {
		return claim, err
	}
	if claim, err = c.claimOf(machine); err != nil {
		return nil, err
	}
	err = c.Create(ctx, claim)
	if apierrors.IsAlreadyExists(err) { // the cache does not show it yet
		err = c.Live.Get(ctx, key, claim)
	}
	if err != nil {
		return nil, fmt.Errorf("claiming an address: %w", err)
	}
	return claim, nil
}

// claimOf returns the IPAddressClaim of a machine, as the contract has it: it names the pool and
// the Cluster, has the machine's name, and is controlled by the machine, so that the machine is not
// gone before the claim, and `clusterctl move` takes both.
func (c *Controller) claimOf(machine *v1alpha1.ExampleMachine) (*ipamv1.IPAddressClaim, error) {
	cluster := machine.Labels[clusterv1.ClusterNameLabel]
	claim := &ipamv1.IPAddressClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: machine.Namespace,
			Name:      machine.Name,
			Labels:    map[string]string{clusterv1.ClusterNameLabel: cluster},
		},
		Spec: ipamv1.IPAddressClaimSpec{ClusterName: cluster, PoolRef: machine.Spec.AddressFrom},
	}
	return claim, controllerutil.SetControllerReference(machine, claim, c.Scheme())
}
