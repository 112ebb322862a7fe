package audit

import (
	"net/netip"
	"slices"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// claims judges the IPClaims whose status reports that they hold a block.
func (j *judgement) claims() {
	for i := range j.Snapshot.Claims {
		claim := &j.Snapshot.Claims[i]
		if !claim.Bound {
			continue
		}
		object := objectNamed(kindClaim, claim.Name, claim.UID)
		record := j.recordsBy[ipam.Name{Namespace: claim.Name.Namespace, Name: claim.Record}]
		switch {
		case claim.Block == "":
			j.add(HolderDiffersFromRecord, object, "", "is Bound, and its status names no block: delete it and create it again")
		case claim.Record == "":
			j.add(HolderWithoutRecord, object, claim.Block, "is Bound to %s, and spec.allocationName names no IPAllocation: delete it and create it again", claim.Block)
		case record == nil && j.covers("ipallocations", claim.Name.Namespace):
			j.add(HolderWithoutRecord, object, claim.Block, "holds %s, and its IPAllocation %s does not exist, so others may be given the block: the operator records it again if it is free; see the condition Ready of the claim", claim.Block, claim.Record)
		case record != nil:
			j.compare(claim, record, object)
		}
	}
}

func (j *judgement) compare(claim *Claim, record *Record, object Object) {
	var differs string
	switch {
	case record.Holder != convert.HolderOfClaim(claim.Name):
		differs = "is for " + record.Holder.String()
	case !record.MayBeOf(claim.UID):
		differs = "is for an earlier claim of that name"
	case record.Block.String() != claim.Block:
		differs = "has " + record.Block.String()
	case claim.Pool != ipam.PoolKey{} && record.Pool != claim.Pool:
		differs = "names " + record.Pool.String() + " and not " + claim.Pool.String()
	case record.State != ipam.StateBound:
		differs = "has the state " + string(record.State)
	default:
		return
	}
	j.add(HolderDiffersFromRecord, object, claim.Block, "has the CIDR %s, and its IPAllocation %s %s: delete the claim and create it again", claim.Block, record.Name.Name, differs).Other = new(record.object())
}

// pools judges the pools whose status reports that their CIDR is recorded.
func (j *judgement) pools() {
	for i := range j.Snapshot.Pools {
		pool := &j.Snapshot.Pools[i]
		if pool.Recorded == "" {
			continue
		}
		object := pool.object()
		record := j.recordOfPool(pool)
		switch {
		case record == nil && j.covers("ipallocations", ""):
			j.add(HolderWithoutRecord, object, pool.Recorded, "has the CIDR %s, and no IPAllocation records that, so another pool may be given it: the operator records it again if it is free; see the condition Allocated of the pool", pool.Recorded)
		case record != nil:
			j.comparePool(pool, record, object)
		}
	}
}

func (p *Pool) object() Object {
	return objectNamed(string(p.Key.Kind), ipam.Name{Namespace: p.Key.Namespace, Name: p.Key.Name}, p.UID)
}

// hasRecord reports whether a record is what the pool holds, or what it held before its ranges were
// edited.
func (p *Pool) hasRecord(record *Record) bool {
	isEarlier := p.Occupied != nil && record.HolderUID == p.UID
	return isEarlier || slices.Equal(record.Blocks(), p.Blocks())
}

// recordOfPool returns the record of what a pool holds: a record with exactly its blocks before
// others.
func (j *judgement) recordOfPool(pool *Pool) *Record {
	var found *Record
	for _, record := range j.holdersOf[convert.HolderOfPool(pool.Key)] {
		if record.Purpose == ipam.PurposePool && (found == nil || slices.Equal(record.Blocks(), pool.Blocks())) {
			found = record
		}
	}
	return found
}

func (j *judgement) comparePool(pool *Pool, record *Record, object Object) {
	var differs string
	switch {
	case pool.Occupied != nil && !pool.hasRecord(record):
		differs = "has " + ipam.FormatList(record.Blocks(), mostExamples, netip.Prefix.String, ", ")
	case pool.Occupied == nil && (record.Block.String() != pool.Recorded || !pool.hasRecord(record)):
		differs = "has " + record.Block.String()
	case record.Pool != pool.Home:
		differs = "names " + record.Pool.String() + " and not " + pool.Home.String()
	case record.State == ipam.StateReleasing && !pool.Terminating && j.isOver(record.Written):
		differs = "is being released, so that nothing is handed out"
	default:
		return
	}
	j.add(HolderDiffersFromRecord, object, pool.CIDR.String(), "has the CIDR %s, and its IPAllocation %s %s: see the conditions of the pool and kubectl ipam doctor", pool.CIDR, record.Name, differs).Other = new(record.object())
}

// addresses judges Cluster API's IPAddresses and IPAddressClaims of Cadastre. An object that is
// being deleted is under way.
func (j *judgement) addresses() {
	for i := range j.Snapshot.Addresses {
		address := &j.Snapshot.Addresses[i]
		if address.Terminating {
			continue
		}
		object, block := objectNamed("IPAddress", address.Name, address.UID), address.Addr.String()
		claim := ipam.Name{Namespace: address.Name.Namespace, Name: address.Claim}
		if j.requestsBy[claim] == nil && j.covers("ipaddressclaims", claim.Namespace) {
			j.add(AddressWithoutClaim, object, block, "%s is for the IPAddressClaim %s, which does not exist: delete the IPAddress if no machine uses it", block, claim.Name)
		}
		if j.covers("ipallocations", claim.Namespace) && !j.isRecorded(claim, address) {
			j.add(HolderWithoutRecord, object, block, "has %s, and no IPAllocation records that, so others may be given the address: see the condition Ready of the IPAddressClaim %s", block, claim.Name)
		}
	}
	for i := range j.Snapshot.AddressClaims {
		claim := &j.Snapshot.AddressClaims[i]
		if claim.Terminating || claim.Address == "" || !j.covers("ipaddresses", claim.Name.Namespace) {
			continue
		}
		if j.addressesBy[ipam.Name{Namespace: claim.Name.Namespace, Name: claim.Address}] == nil {
			j.add(ClaimWithoutAddress, objectNamed(convert.AddressClaimKind, claim.Name, claim.UID), "",
				"names the IPAddress %s, which does not exist: the operator makes it again; if it does not, see kubectl ipam doctor", claim.Address)
		}
	}
}

func (j *judgement) isRecorded(claim ipam.Name, address *Address) bool {
	return slices.ContainsFunc(j.holdersOf[convert.HolderOfAddressClaim(claim)], func(record *Record) bool {
		return record.Block.Addr() == address.Addr && record.State == ipam.StateBound
	})
}
