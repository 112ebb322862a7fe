package provisioner

import (
	"context"
	"net/netip"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// Provisioner gets ranges of addresses elsewhere and returns them. Its methods are called concurrently
// for different keys and never for the same key by one process, which waits for each call. A process
// that has lost the lease may still call one while another process calls it for the same key: concurrent
// calls for a key may fail, but those of Provision that succeed return the same range.
//
// Both are called again until they succeed, after a crash too, and must end when ctx is done. An error is
// shown to the users who can read the class: it must hold no secret, and should be the same text each
// time, without times or counters.
type Provisioner interface {
	// Provision returns the range of the key: the same one for each call until Release is called with the
	// key, and none that overlaps the range of another key. It stores the key with the range, at the
	// system that the range is from, before it returns.
	//
	// If Request.Range is valid, a pool has that range already. Provision returns it again, and gets
	// exactly that range if the system has forgotten it, as after a restore of its backup. It
	// returns an error, and changes nothing, if the system has given it to another holder, or has another
	// range for the key.
	Provision(ctx context.Context, request Request) (netip.Prefix, error)

	// Release returns the range of a key. It succeeds if the key has none. It gets no parameters, because
	// the class may be gone. A key is not used again after Release. Run calls it twice for each key, with
	// Options.Timeout between.
	Release(ctx context.Context, key string) error
}

// Request describes a range that a class needs.
type Request struct {
	// Key identifies the range: a DNS subdomain (RFC 1123) of at most 128 characters, unique among all
	// clusters. The keys of a class differ in their last 10 characters: store a key whole, and compare all of
	// it.
	Key string
	// Cluster is the UID of the kube-system Namespace of the cluster, with which Key begins.
	Cluster string
	// Class is the name of the class, and Parameters are its parameters, also those that Run reads.
	Class      string
	Parameters map[string]string
	// Family of the range.
	Family v1alpha1.IPFamily
	// PrefixLength of the range. Bits.
	PrefixLength int
	// Range is the zero Prefix, or the range that the pool of the key has.
	Range netip.Prefix
}

// ConditionProvisioned is the condition of a class with which Run reports. It is True if the pools of the
// class have room for the claims that wait, or will have soon.
const ConditionProvisioned = "Provisioned"

// Reasons of ConditionProvisioned.
const (
	// ReasonProvisioned: the pools have room, or a pool is being made.
	ReasonProvisioned = "Provisioned"
	// ReasonInvalidParameters: a parameter of the class is missing or invalid.
	ReasonInvalidParameters = "InvalidParameters"
	// ReasonBlockTooLarge: larger blocks are needed than a pool has.
	ReasonBlockTooLarge = "BlockTooLarge"
	// ReasonMaxPools: claims wait, and the class has parameters.maxPools pools.
	ReasonMaxPools = "MaxPools"
	// ReasonProvisionFailed: Provision returned an error, or an unsuitable range.
	ReasonProvisionFailed = "ProvisionFailed"
	// ReasonPoolRefused: the API server did not create the pool of a range, or the range overlaps another
	// pool. It is returned, unless the pool may be created or recorded later.
	ReasonPoolRefused = "PoolRefused"
	// ReasonRangeLost: Provision did not return the range that a pool has. The pool goes on.
	ReasonRangeLost = "RangeLost"
	// ReasonReleaseFailed: the pool could not be deleted, or Release returned an error. Both are repeated.
	ReasonReleaseFailed = "ReleaseFailed"
)

// LabelProvisioner on an IPPool names the provisioner that made it, in lower case and with a dot in place of
// the slash.
const LabelProvisioner = "ipam.cadastre.dev/provisioner"

// pausedByUs is the value of the annotation that pauses a pool until its key is Ready. A pool that is paused
// with another value stays so.
const pausedByUs = "until-provisioned"
