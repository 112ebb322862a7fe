package edit

import (
	"context"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// keepingOf returns how long the block of a claim is kept, as far as the caller can read the
// class and the pool.
func (r *Releasing) keepingOf(ctx context.Context, namespace, className string, ref *v1alpha1.PoolReference) ipam.Keeping {
	var class *ipam.Class
	var pool *ipam.Pool
	if obj := (&v1alpha1.IPClass{}); className != "" && r.Client.Get(ctx, client.ObjectKey{Name: className}, obj) == nil {
		if read, errs := convert.Class(obj); len(errs) == 0 {
			class = &read
		}
	}
	if ref != nil {
		obj := v1alpha1.NewPool(ref.Kind)
		key := client.ObjectKey{Name: ref.Name}
		if ref.Kind == v1alpha1.PoolKindLocalIPPool {
			key.Namespace = namespace
		}
		if r.Client.Get(ctx, key, obj) == nil {
			if read, errs := convert.Pool(obj); len(errs) == 0 {
				pool = &read
			}
		}
	}
	return ipam.KeepingOf(class, pool)
}

// Afterwards describes how the block of a claim is treated after the release.
func Afterwards(policy v1alpha1.ReclaimPolicy, keeping ipam.Keeping) string {
	switch {
	case policy == v1alpha1.ReclaimRetain && keeping.Retention > 0:
		return fmt.Sprintf("reclaimPolicy Retain: the block stays held for %s, for a claim of the same name", inWords(keeping.Retention))
	case policy == v1alpha1.ReclaimRetain:
		return "reclaimPolicy Retain: the block stays held for a claim of the same name, until its retention period is over"
	case keeping.ReuseDelay > 0:
		return fmt.Sprintf("reclaimPolicy Delete: the block can be handed out again %s after the claim is gone", inWords(keeping.ReuseDelay))
	default:
		return "reclaimPolicy Delete: the block is free again as soon as the claim is gone"
	}
}

// inWords writes a duration without the zeros: 720h and not 720h0m0s.
func inWords(d time.Duration) string {
	text := strings.TrimSuffix(d.String(), "0s")
	if trimmed, ok := strings.CutSuffix(text, "h0m"); ok {
		return trimmed + "h"
	}
	if text == "" || !strings.HasSuffix(text, "m") {
		return d.String()
	}
	return text
}

func until(record *v1alpha1.IPAllocation) string {
	if record.Spec.ReleaseAfter == nil {
		return ""
	}
	return " until " + record.Spec.ReleaseAfter.UTC().Format(time.RFC3339)
}

func after(record *v1alpha1.IPAllocation) string {
	if record.Spec.ReleaseAfter == nil {
		return " soon"
	}
	return " after " + record.Spec.ReleaseAfter.UTC().Format(time.RFC3339)
}

func lower(kind string) string { return strings.ToLower(kind) }
