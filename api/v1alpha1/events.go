package v1alpha1

// Reasons of events in addition to those of the condition Ready. An event is written when Ready
// gets a new reason.
const (
	// EventDraining: an edit of ranges or reserved excludes held blocks of the pool. They are kept
	// until they are released.
	EventDraining = "Draining"
	// EventDrained: the last of these blocks has been released.
	EventDrained = "Drained"
	// EventDeletionBlocked: the pool is being deleted, and stays until its last block is released.
	// The event has the number of held blocks.
	EventDeletionBlocked = "DeletionBlocked"
	// EventRetained: the claim of an IPAllocation is gone, and its block is kept.
	EventRetained = "Retained"

	// EventNetworksClaimed is of a Cluster of Cluster API whose blocks are held for it: it lists them.
	EventNetworksClaimed = "NetworksClaimed"
	// EventNetworkConflict is of a Cluster of Cluster API one of whose blocks is not held for it.
	EventNetworkConflict = "NetworkConflict"
	// EventNetworksInvalid is of a Cluster that exists and whose annotations ask for networks in a wrong
	// way.
	EventNetworksInvalid = "NetworksInvalid"
)
