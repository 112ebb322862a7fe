// Package provisioner makes and removes the IPPools of IPClasses whose spec.provisioner names a
// program, from ranges that the program gets elsewhere. The operator hands out blocks from these pools
// as from all others; a provisioner never serves a claim.
//
// A program implements Provisioner, two methods that get a range and return it, and calls Run, which
// does the rest: it follows the demand of the classes, keeps spare room, creates pools and deletes
// those that stay empty, repeats failed calls with back-off, elects a leader, and reports by a condition
// of the class, by events and by metrics. provisioner/conformance tests an implementation.
//
// # Parameters
//
// Run reads these parameters of a class; an implementation can define others:
//
//	poolPrefixLength   the prefix length of each pool. Required.
//	spare              the number of blocks of the class's defaultPrefixLength, or else of addresses,
//	                   for which the pools have room beside the demand. Default: 0.
//	maxPools           the number of pools. Default: 16.
//	releaseAfter       the time after which an empty pool that is not needed is returned, such as
//	                   30m. At least 5s. Default: 10m.
//
// # Keys
//
// Each range has a key, which is also the name of its pool with the UID of the cluster before it. The
// keys are in a ConfigMap of the provisioner, one for each pool:
//
//	(none) → Provisioning → Ready → Releasing → (none)
//
// Every step is written with the resourceVersion that was read, before the step begins:
//
//   - Provisioning is written before Provision is called, and read again afterwards. So a range whose pool
//     was never created is known, and is used or returned.
//   - The pool is created with the annotation ipam.cadastre.dev/paused, which is removed after Provision has
//     returned its range again, and Ready is written. So no range is opened that the system has lost in
//     between, and a process that does not know yet that it has lost the lease opens no pool whose range
//     another one returns.
//   - Releasing is written before the pool is deleted. Release is called when the API server has neither
//     the pool nor a record of it, and again after Options.Timeout. So no range is returned while a block of it
//     is held, even if a user removed the finalizer of the pool, and none is left that a call of Provision,
//     of this or another process, took late.
//
// If the ConfigMap is lost, the keys of open pools are taken from the pools.
//
// # Rights
//
// Run needs these rights; provision for its own classes only:
//
//	+kubebuilder:rbac:groups=ipam.cadastre.dev,resources=ipclasses,verbs=get;list;provision;watch
//	+kubebuilder:rbac:groups=ipam.cadastre.dev,resources=ipclasses/status,verbs=patch
//	+kubebuilder:rbac:groups=ipam.cadastre.dev,resources=ippools,verbs=create;delete;get;list;patch;watch
//	+kubebuilder:rbac:groups=ipam.cadastre.dev,resources=ipallocations,verbs=list
//	+kubebuilder:rbac:groups="",resources=namespaces,verbs=get,resourceNames=kube-system
//	+kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
//
// and in its namespace, get and update only of the name provisioner-NAME, such as
// provisioner-ipam.example.com.ranges:
//
//	+kubebuilder:rbac:groups="",resources=configmaps,verbs=create;get;update
//	+kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=create;get;update
//	+kubebuilder:rbac:groups="",resources=events,verbs=create;patch
package provisioner
