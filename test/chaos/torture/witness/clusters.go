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
	if e.After.Metadata.Annotations[MovedAnnotation] != "" {
		w.figures.Moved++
		return
	}
	for _, block := range blocksOf(e.After) {
		if !w.isClaimed(e.After, block) {
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

// isClaimed reports whether a claim of a Cluster holds a block.
func (w *Witness) isClaimed(cluster *Object, block netip.Prefix) bool {
	h := w.claimFor(cluster, block)
	return h != nil && (h.holds || h.dispossessed)
}

// claimFor returns the claim of a Cluster that has a block, or asks for it; nil if there is none.
func (w *Witness) claimFor(cluster *Object, block netip.Prefix) *holding {
	for _, h := range w.claims {
		if h.Metadata.Namespace == cluster.Metadata.Namespace && h.Block == block && clusterOf(h.Object) == cluster.Metadata.Name {
			return h
		}
	}
	return nil
}

// isTaken reports whether a block of a pool, or a part of it, is recorded.
func (w *Witness) isTaken(block netip.Prefix) bool {
	for place, at := range w.recorded {
		if strings.HasPrefix(place, "pool ") && len(at.overlapping(block, "")) > 0 {
			return true
		}
	}
	return false
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
// stored. Another holder may have got a block while its Cluster was moved: the claim reports it.
func (w *Witness) unsettledClusters() []string {
	var open []string
	for key, cluster := range w.clusters {
		for _, block := range blocksOf(cluster) {
			h := w.claimFor(cluster, block)
			isLost := h != nil && cluster.Metadata.Annotations[MovedAnnotation] != "" && conflicts(h) && w.isTaken(block)
			if !isLost && !w.isClaimed(cluster, block) {
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
