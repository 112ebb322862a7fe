package migrate

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"

	"go4.org/netipx"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// closeMetal3 leaves only the addresses in use in a pool, and preallocates each address of an
// IPAddressClaim to that claim, so that the address is not handed out to another claim when its
// IPAddress is deleted. Claims of Metal3's own kind stay with Metal3: it can hand out an
// address that one of them releases to another one.
func closeMetal3(pool *unstructured.Unstructured, inUse []holding) (bool, error) {
	before, err := metal3SpecOf(pool)
	if err != nil {
		return false, err
	}
	after := before
	after.Pools, after.PreAllocations = nil, maps.Clone(before.PreAllocations)
	if after.PreAllocations == nil {
		after.PreAllocations = map[string]string{}
	}
	left := &netipx.IPSet{}
	for _, text := range before.PreAllocations {
		if span, err := parseSpan(text); err == nil {
			left = union(left, setOfRange(span))
		}
	}
	var used netipx.IPSetBuilder
	for _, h := range inUse {
		used.Add(h.addr)
		if !h.isOwn {
			after.PreAllocations[h.claim] = h.addr.String()
		}
	}
	left = union(left, built(&used))
	for _, part := range before.Pools {
		span, err := part.span()
		if err != nil {
			return false, fmt.Errorf("spec.pools: %w", err)
		}
		kept := common(left, setOfRange(span))
		after.Pools = append(after.Pools, part.parts(kept)...)
		left = minus(left, kept)
	}
	after.Pools = append(after.Pools, metal3Part{}.parts(left)...)
	return writeMetal3(pool, before, after)
}

// parts returns the ranges of a set, with the settings of a part.
func (part metal3Part) parts(set *netipx.IPSet) []metal3Part {
	var parts []metal3Part
	for _, span := range set.Ranges() {
		kept := part
		kept.Subnet, kept.Start, kept.End = "", span.From().String(), span.To().String()
		parts = append(parts, kept)
	}
	return parts
}

// writeMetal3 writes a spec into a pool, and the spec before an import into the annotation of
// the pool. It reports whether that changes the pool.
func writeMetal3(pool *unstructured.Unstructured, before, after metal3Spec) (bool, error) {
	saved, err := json.Marshal(before)
	if err != nil {
		return false, fmt.Errorf("saving spec: %w", err)
	}
	was := pool.DeepCopy()
	if err := setMetal3(pool, after); err != nil {
		return false, err
	}
	annotate(pool, map[string]string{specBeforeImport: string(saved)})
	return !reflect.DeepEqual(was.Object, pool.Object), nil
}

// setMetal3 sets the fields of a spec that concern addresses.
func setMetal3(pool *unstructured.Unstructured, spec metal3Spec) error {
	written, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&metal3Spec{Pools: spec.Pools, PreAllocations: spec.PreAllocations})
	if err != nil {
		return fmt.Errorf("writing spec: %w", err)
	}
	for _, field := range []string{"pools", "preAllocations"} {
		if value, ok := written[field]; ok {
			err = unstructured.SetNestedField(pool.Object, value, "spec", field)
		} else {
			unstructured.RemoveNestedField(pool.Object, "spec", field)
		}
		if err != nil {
			return fmt.Errorf("writing spec.%s: %w", field, err)
		}
	}
	return nil
}

// reopenMetal3 restores the addresses that a pool could hand out before the import.
func reopenMetal3(pool *unstructured.Unstructured) error {
	if _, closed := pool.GetAnnotations()[specBeforeImport]; !closed {
		return nil
	}
	before, err := metal3SpecOf(pool)
	if err != nil {
		return err
	}
	unannotate(pool, specBeforeImport)
	return setMetal3(pool, before)
}
