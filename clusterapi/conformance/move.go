package conformance

import (
	"context"
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func moveClauses() []Clause {
	return []Clause{{
		ID: "C29", Name: "pool_keeps_label_of_cluster", Level: Should, Section: move, check: poolKeepsLabel,
		Requires: "a pool can have the label cluster.x-k8s.io/cluster-name, by which it moves with the Cluster",
	}}
}

func poolKeepsLabel(ctx context.Context, t *trial) error {
	if _, err := t.cluster(ctx, "cluster", pause{}); err != nil {
		return err
	}
	if err := t.Patch(ctx, t.pool, merge(`{"metadata":{"labels":{"`+clusterv1.ClusterNameLabel+`":"cluster"}}}`)); err != nil {
		return err
	}
	if err := t.settle(ctx); err != nil {
		return err
	}
	if err := t.Get(ctx, client.ObjectKeyFromObject(t.pool), t.pool); err != nil {
		return err
	}
	if got := t.pool.GetLabels()[clusterv1.ClusterNameLabel]; got != "cluster" {
		return fmt.Errorf("the label %s of %s is %q: want %q", clusterv1.ClusterNameLabel, named(t.pool), got, "cluster")
	}
	return nil
}
