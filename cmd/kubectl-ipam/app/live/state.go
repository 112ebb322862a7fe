package live

import (
	"maps"
	"slices"
	"time"

	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// state holds the objects that the feeds have read, and the changes that have not been
// published. Live guards it.
type state struct {
	pools   map[ipam.PoolKey]v1alpha1.Pool
	classes map[string]*v1alpha1.IPClass
	// records, claims and addressClaims hold the objects by UID.
	records       map[string]*register.Record
	claims        map[string]*v1alpha1.IPClaim
	addressClaims map[string]*ipamv1.IPAddressClaim
	// clusters holds the names of the Clusters of Cluster API, by the claim that has a network of theirs.
	clusters map[ipam.Holder]string
	// invalid holds the reasons why records could not be read, by UID.
	invalid map[string]error
	// held holds the records of each pool, by UID; no pool has an empty map.
	held map[ipam.PoolKey]map[string]*register.Record
	// poolRecords holds the records of pools, by UID.
	poolRecords map[string]*register.Record

	// changed holds the changed records, by UID, as they are or were last, and used the pools of
	// which any block has changed.
	changed map[string]*register.Record
	used    map[ipam.PoolKey]bool
	// regrouped holds the claims whose Cluster has changed.
	regrouped map[ipam.Holder]bool
	// structure is set when something has changed by which pools and claims are shown, and
	// status when the operator has written the status of a pool.
	structure, status bool
	// built holds the register that answered the last question; nil once something has changed.
	built *register.Register

	shown shown
}

// shown holds the data that was published last.
type shown struct {
	// register holds the pools and the records of pools, and no others.
	register *register.Register
	pools    map[ipam.PoolKey]*shownPool
	claims   map[string]Waiting
	unread   Unread
	// isCounted is set if the usage was counted from the records.
	isCounted bool
	// statusAt holds the time at which the status of pools was last taken over.
	statusAt time.Time
}

// shownPool holds a pool as it was published, and the time of that.
type shownPool struct {
	Pool
	at time.Time
}

func newState() state {
	return state{
		pools: map[ipam.PoolKey]v1alpha1.Pool{}, classes: map[string]*v1alpha1.IPClass{},
		records: map[string]*register.Record{}, poolRecords: map[string]*register.Record{},
		claims: map[string]*v1alpha1.IPClaim{}, addressClaims: map[string]*ipamv1.IPAddressClaim{},
		invalid: map[string]error{}, held: map[ipam.PoolKey]map[string]*register.Record{},
		clusters: map[ipam.Holder]string{}, regrouped: map[ipam.Holder]bool{}, changed: map[string]*register.Record{}, used: map[ipam.PoolKey]bool{}, structure: true,
		shown: shown{register: register.Build(&register.Objects{}), pools: map[ipam.PoolKey]*shownPool{}, claims: map[string]Waiting{}},
	}
}

// putRecord takes over a record that is new or has changed.
func (s *state) putRecord(record *register.Record) {
	before := s.records[record.UID]
	if before != nil && before.Version == record.Version {
		return
	}
	delete(s.invalid, record.UID)
	s.records[record.UID] = record
	s.changed[record.UID] = record
	s.built = nil
	if record.Purpose == ipam.PurposePool {
		s.poolRecords[record.UID] = record
		s.structure = true
	}
	if !record.Pool.Kind.IsPool() {
		return
	}
	if s.held[record.Pool] == nil {
		s.held[record.Pool] = map[string]*register.Record{}
	}
	s.held[record.Pool][record.UID] = record
	s.structure = s.structure || s.shown.pools[record.Pool] == nil
	s.used[record.Pool] = true
}

// putListed takes over a record, or the reason why it could not be read.
func (s *state) putListed(read *listed) {
	if read.err == nil {
		s.putRecord(read.record)
		return
	}
	s.removeRecord(read.uid)
	s.invalid[read.uid] = read.err
}

// removeRecord removes a record.
func (s *state) removeRecord(uid string) {
	delete(s.invalid, uid)
	record := s.records[uid]
	if record == nil {
		return
	}
	delete(s.records, uid)
	s.changed[uid] = record
	s.built = nil
	if record.Purpose == ipam.PurposePool {
		delete(s.poolRecords, uid)
		s.structure = true
	}
	held := s.held[record.Pool]
	if held == nil {
		return
	}
	delete(held, uid)
	s.used[record.Pool] = true
	if len(held) == 0 {
		delete(s.held, record.Pool)
		s.structure = s.structure || s.pools[record.Pool] == nil
	}
}

// putPool takes over a pool that is new or has changed. A pool that Cadastre does not serve is none.
func (s *state) putPool(pool v1alpha1.Pool) {
	key := convert.KeyOf(pool)
	before := s.pools[key]
	if !register.IsServed(pool) {
		if before != nil {
			s.removePool(key)
		}
		return
	}
	if before != nil && before.GetResourceVersion() == pool.GetResourceVersion() {
		return
	}
	s.pools[key] = trim(pool)
	s.built = nil
	if before == nil || before.GetUID() != pool.GetUID() || before.GetGeneration() != pool.GetGeneration() ||
		before.PoolStatus().Phase != pool.PoolStatus().Phase || !maps.Equal(before.GetLabels(), pool.GetLabels()) ||
		!maps.Equal(before.GetAnnotations(), pool.GetAnnotations()) {
		s.structure = true
		return
	}
	s.status = true
}

func (s *state) removePool(key ipam.PoolKey) {
	delete(s.pools, key)
	s.structure, s.built = true, nil
}

// putCluster takes over the Cluster that has the network of a claim; empty: none has.
func (s *state) putCluster(claim ipam.Holder, cluster string) {
	if s.clusters[claim] == cluster {
		return
	}
	s.clusters[claim] = cluster
	if cluster == "" {
		delete(s.clusters, claim)
	}
	s.regrouped[claim] = true
}

// objects returns the objects that a register is put together of: with all records, or those of
// pools.
func (s *state) objects(records map[string]*register.Record, unread []register.Unread) *register.Objects {
	objects := &register.Objects{RecordsRead: true, Unread: unread, Records: slices.Collect(maps.Values(records))}
	for _, pool := range s.pools {
		switch pool := pool.(type) {
		case *v1alpha1.IPPool:
			objects.Pools = append(objects.Pools, *pool)
		case *v1alpha1.LocalIPPool:
			objects.LocalPools = append(objects.LocalPools, *pool)
		default:
			objects.InClusterPools = append(objects.InClusterPools, pool)
		}
	}
	for _, claim := range s.claims {
		objects.Waiting = append(objects.Waiting, *claim)
	}
	for _, class := range s.classes {
		objects.Classes = append(objects.Classes, *class)
	}
	return objects
}

// mentioned returns the pools that any object names, with their families.
func (s *state) mentioned() map[ipam.PoolKey]ipam.Family {
	all := map[ipam.PoolKey]ipam.Family{}
	for key, records := range s.held {
		for _, record := range records {
			all[key] = ipam.FamilyOf(record.Block)
			break
		}
	}
	for _, record := range s.poolRecords {
		all[convert.PoolOf(record.Holder)] = ipam.FamilyOf(record.Block)
	}
	for _, pool := range s.pools {
		if spec := pool.PoolSpec(); spec.ParentRef != nil {
			all[convert.PoolKey(pool.GetNamespace(), *spec.ParentRef)] = ipam.Family(spec.IPFamily)
		}
	}
	for _, w := range s.waiters() {
		if w.request != nil && w.request.Pool.Kind.IsPool() {
			all[w.request.Pool] = w.request.Family
		}
	}
	return all
}

// serves reports whether Cadastre serves the pool of an IPAddressClaim.
func (s *state) serves(pool ipam.PoolKey) bool {
	return !pool.Kind.IsInCluster() || s.pools[pool] != nil && !register.IsProviderRunning(s.pools[pool])
}

// waiters returns the claims that wait.
func (s *state) waiters() []*waiter {
	all := make([]*waiter, 0, len(s.claims)+len(s.addressClaims))
	for _, claim := range s.claims {
		all = append(all, waiterOfClaim(claim))
	}
	for _, claim := range s.addressClaims {
		if ref := claim.Spec.PoolRef; s.serves(convert.PoolOfAddress(ref.Kind, claim.Namespace, ref.Name)) {
			all = append(all, waiterOfAddressClaim(claim))
		}
	}
	return all
}

// blocks returns the records, each once for each of its blocks.
func (s *state) blocks() []*register.Record {
	all := make([]*register.Record, 0, len(s.records))
	for _, record := range s.records {
		if len(record.AdditionalBlocks) == 0 {
			all = append(all, record)
			continue
		}
		all = append(all, record.Parts()...)
	}
	return all
}

// counted returns a pool that has the present records, as have the pools below it, for its usage.
func (s *state) counted(pool *register.Pool) *register.Pool {
	counted := &register.Pool{Pool: pool.Pool}
	for _, record := range s.held[pool.Key] {
		counted.Records = append(counted.Records, record.Parts()...)
	}
	for _, child := range pool.Children {
		counted.Children = append(counted.Children, s.counted(child))
	}
	return counted
}
