package allocator

import (
	"errors"

	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
)

// measured is what metrics say of an order.
func measured(o Order) metrics.Allocation {
	m := metrics.Allocation{Origin: metrics.OriginController, Class: o.Terms.Class, Family: string(o.family())}
	switch {
	case o.existing:
		m.Origin = metrics.OriginExisting
	case o.Origin == OriginAdmission:
		m.Origin = metrics.OriginAdmission
	}
	return m
}

// family is that of the block; empty where the order says nothing of it.
func (o Order) family() ipam.Family {
	switch {
	case o.Terms.Family != "":
		return o.Terms.Family
	case o.Terms.Block.IsValid():
		return ipam.FamilyOf(o.Terms.Block)
	case len(o.Pools) > 0:
		return o.Pools[0].Family
	}
	return ""
}

// resultOf is what the error of an allocation counts as.
func resultOf(err error) metrics.Result {
	var limit *ipam.LimitError
	var taken *ipam.TakenError
	var missing *ipam.MissingError
	switch {
	case err == nil:
		return metrics.ResultAllocated
	case errors.As(err, &limit):
		return metrics.ResultLimitReached
	case errors.As(err, &taken):
		return metrics.ResultTaken
	case ipam.IsNoRoom(err):
		return metrics.ResultExhausted
	case errors.As(err, &missing), errors.Is(err, ipam.ErrPoolInUse):
		return metrics.ResultPoolNotReady
	case errors.Is(err, ipam.ErrTooManyUnclaimed):
		return metrics.ResultTooManyUnclaimed
	case ipam.IsTransient(err):
		return metrics.ResultUnconfirmed
	}
	return metrics.ResultError
}
