package ippool

import (
	"time"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// scope is what one pass knows of a pool.
type scope struct {
	obj v1alpha1.Pool
	// pool is set by read.
	pool ipam.Pool
	// record is set by secure: the pool's own.
	record ipam.Record
	// again is set by askAgain: when to ask again for the right to use the parent.
	again time.Duration
	// retry is set by secure where the pool has lost its turn: after how long it is tried
	// again.
	retry time.Duration
}

func copyOf(obj v1alpha1.Pool) v1alpha1.Pool { return obj.DeepCopyObject().(v1alpha1.Pool) }
