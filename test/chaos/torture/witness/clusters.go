package witness

import (
	"fmt"
	"net/netip"
	"strings"
)

// The annotations that tell the networks of a Cluster, and the Cluster of a claim.
const (
	filledAnnotation  = "ipam.cadastre.dev/networks-filled"
	networkAnnotation = "ipam.cadastre.dev/cluster-network"
)

// takeCluster takes in a change of a Cluster: when it is stored, its blocks are held for it.
func (w *Witness) takeCluster(e Event) {
	if e.After == nil {
		delete(w.clusters, e.Before.key())
		return
	}
	w.clusters[e.After.key()] = e.After
	if e.Before != nil {
		return
	}
	w.figures.Clusters++
	for _, block := range blocksOf(e.After) {
		if w.claimFor(e.After, block) == nil {
			w.violated(e, fmt.Sprintf("Cluster %s is stored, and no claim of it holds %s", e.After.key(), block), e.After)
		}
	}
}

// blocksOf returns the blocks that are claimed for a Cluster.
func blocksOf(cluster *Object) []netip.Prefix {
	var blocks []netip.Prefix
	for entry := range strings.SplitSeq(cluster.Metadata.Annotations[filledAnnotation], ",") {
		value, _, hasClass := strings.Cut(entry[strings.Index(entry, "=")+1:], "@")
		if address, err := netip.ParseAddr(value); err == nil {
			value = netip.PrefixFrom(address, address.BitLen()).String()
		}
		if block, err := netip.ParsePrefix(value); err == nil && hasClass {
			blocks = append(blocks, block)
		}
	}
	return blocks
}

// claimFor returns the claim of a Cluster that has a block; nil if there is none.
func (w *Witness) claimFor(cluster *Object, block netip.Prefix) *holding {
	for _, h := range w.claims {
		if h.Metadata.Namespace == cluster.Metadata.Namespace && h.Block == block && (h.holds || h.dispossessed) && clusterOf(h.Object) == cluster.Metadata.Name {
			return h
		}
	}
	return nil
}

// clusterOf returns the Cluster whose network a claim has; empty if it is none.
func clusterOf(claim *Object) string {
	name, _, _ := strings.Cut(claim.Metadata.Annotations[networkAnnotation], "/")
	return name
}

// isKeptForCluster reports whether a claim is one of a Cluster that exists: it stays when it is deleted.
func (w *Witness) isKeptForCluster(h *holding) bool {
	cluster := clusterOf(h.Object)
	return cluster != "" && w.clusters[h.Metadata.Namespace+"/"+cluster] != nil
}

// unsettledClusters returns the Clusters whose blocks are not held, and the claims of those that are not
// stored.
func (w *Witness) unsettledClusters() []string {
	var open []string
	for key, cluster := range w.clusters {
		for _, block := range blocksOf(cluster) {
			if w.claimFor(cluster, block) == nil {
				open = append(open, fmt.Sprintf("Cluster %s: no claim holds %s", key, block))
			}
		}
	}
	for _, h := range w.claims {
		if clusterOf(h.Object) != "" && !w.isKeptForCluster(h) {
			open = append(open, describe(h)+" is left of a Cluster that is not stored")
		}
	}
	return open
}
