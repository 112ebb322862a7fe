package conformance

import (
	"context"
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func claimClauses() []Clause {
	return []Clause{
		{
			ID: "C06", Name: "claim_gets_IPAddress", Level: Must, Section: behavior, prerequisite: true, check: claimGetsAddress,
			Requires: "a claim that references a pool of the provider gets an IPAddress",
		},
		{
			ID: "C07", Name: "changed_claim_is_seen", Level: Must, Section: provider, check: changedClaimIsSeen,
			Requires: "the provider sees claims that are changed",
		},
		{
			ID: "C08", Name: "other_providers_claim_is_left_alone", Level: Must, Section: normal, Step: "1", check: otherClaimIsLeftAlone,
			Requires: "a claim that references a pool of another API group is left alone",
		},
	}
}

func clusterClauses() []Clause {
	return []Clause{
		{
			ID: "C09", Name: "cluster_by_spec_clusterName", Level: Must, Section: normal, Step: "2.1",
			Requires: "the Cluster of a claim is found by spec.clusterName",
			check: func(ctx context.Context, t *trial) error {
				return t.pausedClaimIsIgnored(ctx, pause{field: true, annotation: true}, func(claim *ipamv1.IPAddressClaim) { claim.Spec.ClusterName = "paused" })
			},
		},
		{
			ID: "C10", Name: "cluster_by_label", Level: Must, Section: normal, Step: "2.1",
			Requires: "the Cluster of a claim is found by the label cluster.x-k8s.io/cluster-name, which is deprecated",
			check: func(ctx context.Context, t *trial) error {
				return t.pausedClaimIsIgnored(ctx, pause{field: true, annotation: true}, func(claim *ipamv1.IPAddressClaim) {
					claim.Labels = map[string]string{clusterv1.ClusterNameLabel: "paused"}
				})
			},
		},
		{
			ID: "C11", Name: "claim_of_running_cluster", Level: Must, Section: normal, Step: "2.2", check: claimOfRunningCluster,
			Requires: "a claim is served if its Cluster is not paused: from the start, when the pause ends, and when the Cluster appears",
		},
		{
			ID: "C12", Name: "claim_of_missing_cluster", Level: Must, Section: normal, Step: "2.3", check: claimOfMissingCluster,
			Requires: "a claim whose Cluster does not exist gets no address",
		},
		{
			ID: "C13", Name: "cluster_paused_by_spec", Level: Must, Section: normal, Step: "2.4",
			Requires: "a claim gets no address while its Cluster has spec.paused",
			check: func(ctx context.Context, t *trial) error {
				return t.pausedClaimIsIgnored(ctx, pause{field: true}, func(claim *ipamv1.IPAddressClaim) { ofCluster(claim, "paused") })
			},
		},
		{
			ID: "C14", Name: "cluster_paused_by_annotation", Level: Must, Section: normal, Step: "2.4",
			Requires: "a claim gets no address while its Cluster has the annotation cluster.x-k8s.io/paused",
			check: func(ctx context.Context, t *trial) error {
				return t.pausedClaimIsIgnored(ctx, pause{annotation: true}, func(claim *ipamv1.IPAddressClaim) { ofCluster(claim, "paused") })
			},
		},
	}
}

func claimGetsAddress(ctx context.Context, t *trial) error {
	_, _, err := t.claimed(ctx, "claim")
	return err
}

func changedClaimIsSeen(ctx context.Context, t *trial) error {
	if _, err := t.cluster(ctx, "running", pause{}); err != nil {
		return err
	}
	claim := t.newClaim("claim")
	claim.Labels = map[string]string{clusterv1.ClusterNameLabel: "missing"}
	if err := t.Create(ctx, claim); err != nil {
		return err
	}
	if err := t.settle(ctx); err != nil {
		return err
	}
	if err := t.Patch(ctx, claim, merge(`{"metadata":{"labels":{"`+clusterv1.ClusterNameLabel+`":"running"}}}`)); err != nil {
		return err
	}
	if _, err := t.served(ctx, claim); err != nil {
		return fmt.Errorf("the claim first named a Cluster that does not exist, and then one that does: %w", err)
	}
	return nil
}

func otherClaimIsLeftAlone(ctx context.Context, t *trial) error {
	claim := t.newClaim("of-another-provider")
	claim.Spec.PoolRef.APIGroup = "conformance.example.com"
	if err := t.Create(ctx, claim); err != nil {
		return err
	}
	created := claim.ResourceVersion
	if err := t.ignored(ctx, claim); err != nil {
		return fmt.Errorf("it references %s of the API group conformance.example.com: %w", claim.Spec.PoolRef.Kind, err)
	}
	if err := t.Get(ctx, client.ObjectKeyFromObject(claim), claim); err != nil {
		return err
	}
	if claim.ResourceVersion != created {
		return fmt.Errorf("%s was written, although it references the API group conformance.example.com: finalizers %q, status %+v", named(claim), claim.Finalizers, claim.Status)
	}
	return nil
}

// pausedClaimIsIgnored creates a paused Cluster with the name paused, and a claim of it.
func (t *trial) pausedClaimIsIgnored(ctx context.Context, paused pause, refer func(*ipamv1.IPAddressClaim)) error {
	if _, err := t.cluster(ctx, "paused", paused); err != nil {
		return err
	}
	claim := t.newClaim("claim")
	refer(claim)
	if err := t.Create(ctx, claim); err != nil {
		return err
	}
	return t.ignored(ctx, claim)
}

func claimOfRunningCluster(ctx context.Context, t *trial) error {
	if _, err := t.cluster(ctx, "running", pause{}); err != nil {
		return err
	}
	claim := ofCluster(t.newClaim("running"), "running")
	if err := t.Create(ctx, claim); err != nil {
		return err
	}
	if _, err := t.served(ctx, claim); err != nil {
		return fmt.Errorf("the Cluster is not paused: %w", err)
	}
	paused, err := t.cluster(ctx, "paused", pause{field: true})
	if err != nil {
		return err
	}
	ofPaused, ofLate := ofCluster(t.newClaim("paused"), "paused"), ofCluster(t.newClaim("late"), "late")
	for _, claim := range []*ipamv1.IPAddressClaim{ofPaused, ofLate} {
		if err := t.Create(ctx, claim); err != nil {
			return err
		}
	}
	if err := t.settle(ctx); err != nil {
		return err
	}
	if err := t.resume(ctx, paused); err != nil {
		return err
	}
	if _, err := t.served(ctx, ofPaused); err != nil {
		return fmt.Errorf("the Cluster is not paused any more: %w", err)
	}
	if _, err := t.cluster(ctx, "late", pause{}); err != nil {
		return err
	}
	if _, err := t.served(ctx, ofLate); err != nil {
		return fmt.Errorf("the Cluster exists now: %w", err)
	}
	return nil
}

func claimOfMissingCluster(ctx context.Context, t *trial) error {
	claim := ofCluster(t.newClaim("claim"), "missing")
	if err := t.Create(ctx, claim); err != nil {
		return err
	}
	return t.ignored(ctx, claim)
}
