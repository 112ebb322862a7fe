package ipam

import "cmp"

// MayUse reports whether a tenant may use a pool or a class of the visibility and
// project.
func (t Tenant) MayUse(visibility Visibility, project string) bool {
	switch visibility {
	case VisibilityConsumer:
		return t.Project == project
	case VisibilityPlatform:
		return t.Platform
	default:
		return true
	}
}

// Namespace of the requester; empty for a cluster-scoped pool.
func (r Request) Namespace() string { return cmp.Or(r.Claim.Namespace, r.Child.Namespace) }

// MayUse reports whether the request may be served from a pool that it does not
// name: one of its namespace's own, or one that is visible to its tenant.
func (r Request) MayUse(pool Pool) bool {
	if pool.Key.Namespace != "" {
		return pool.Key.Namespace == r.Namespace()
	}
	return r.Namespace() == "" || r.Tenant.MayUse(pool.Visibility, pool.Project)
}

// MayName reports whether the request may name the pool. What it may not name is
// answered as what does not exist.
func (r Request) MayName(pool Pool) bool {
	return r.MayUse(pool) && (r.Granted || !r.NeedsGrant(pool))
}

// NeedsGrant reports whether naming the pool takes more than its being visible: for
// a claim and a cluster-scoped pool where it belongs to another project, for a
// namespace's own pool always, because what it is given is out of the platform's
// hands. Pools of the requester's own namespace take nothing.
func (r Request) NeedsGrant(pool Pool) bool {
	if pool.Key.Kind == PoolKindLocalIPPool {
		return false
	}
	return r.Child.Kind == PoolKindLocalIPPool || pool.Project != "" && pool.Project != r.Tenant.Project
}
