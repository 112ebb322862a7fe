package v1alpha1

// Reasons of events beside those of the condition Ready, which an event has when Ready
// comes to have it.
const (
	// EventDraining: blocks of the pool are held that its ranges or reserved addresses exclude
	// since they were edited. They are kept until they are released.
	EventDraining = "Draining"
	// EventDrained: the last of these blocks has been released.
	EventDrained = "Drained"
	// EventDeletionBlocked: the pool is being deleted, and stays until its last block is
	// released. The event says how many are held.
	EventDeletionBlocked = "DeletionBlocked"
	// EventRetained: the claim of an IPAllocation is gone, and its block is kept.
	EventRetained = "Retained"
)
