// Package hostile makes objects that no client should send, and sends them.
package hostile

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// valid returns objects that are accepted as they are, by the plural of their kind.
func valid() map[string][]map[string]any {
	meta := func(name string) map[string]any {
		return map[string]any{"generateName": name + "-", "labels": map[string]any{"from": "hostile"}, "annotations": map[string]any{"example.com/note": "x"}}
	}
	return map[string][]map[string]any{
		"ippools": {
			{"kind": "IPPool", "metadata": meta("root"), "spec": map[string]any{
				"cidr": "10.64.0.0/24", "classNames": []any{"hosts"}, "ranges": []any{"10.64.0.10-10.64.0.20", "10.64.0.32/28"}, "reserved": []any{"10.64.0.12"},
				"network":    map[string]any{"prefixLength": int64(24), "gateway": "10.64.0.1"},
				"allocation": map[string]any{"minPrefixLength": int64(26), "maxPrefixLength": int64(32), "strategy": "BestFit"}, "reuseDelay": "1s",
			}},
			{"kind": "IPPool", "metadata": meta("child"), "spec": map[string]any{"parentRef": map[string]any{"kind": "IPPool", "name": "base"}, "prefixLength": int64(30)}},
		},
		"localippools": {
			{"kind": "LocalIPPool", "metadata": meta("own"), "spec": map[string]any{
				"cidr": "10.64.0.0/24", "ranges": []any{"10.64.0.10-10.64.0.20"}, "reserved": []any{"10.64.0.12"}, "routingDomain": "lab",
				"network": map[string]any{"prefixLength": int64(24), "gateway": "10.64.0.1"}, "allocation": map[string]any{"minPrefixLength": int64(26), "maxPrefixLength": int64(32)},
			}},
			{"kind": "LocalIPPool", "metadata": meta("beside"), "spec": map[string]any{"parentRef": map[string]any{"kind": "LocalIPPool", "name": "local"}, "prefixLength": int64(30)}},
			{"kind": "LocalIPPool", "metadata": meta("below"), "spec": map[string]any{"parentRef": map[string]any{"kind": "IPPool", "name": "base"}, "prefixLength": int64(30)}},
		},
		addressClaims: {
			addressClaim(meta("of-pool"), "IPPool", "base"), addressClaim(meta("of-class"), "IPClass", "hosts"), addressClaim(meta("of-local"), "LocalIPPool", "local"),
			addressClaim(map[string]any{"generateName": "exact-", "annotations": map[string]any{"ipam.cadastre.dev/address": "10.1.4.7"}, "finalizers": []any{}}, "IPPool", "base"),
		},
		addresses: {{"kind": "IPAddress", "metadata": meta("made"), "spec": map[string]any{
			"poolRef":  map[string]any{"apiGroup": "ipam.cadastre.dev", "kind": "IPPool", "name": "base"},
			"claimRef": map[string]any{"name": "nobody"}, "address": "10.1.5.9", "prefix": int64(16), "gateway": "10.1.0.1",
		}}},
		"ipclasses": {{"kind": "IPClass", "metadata": meta("class"), "spec": map[string]any{
			"ipFamily": "IPv4", "defaultPrefixLength": int64(32), "allowedPrefixLengths": map[string]any{"min": int64(28), "max": int64(32)},
			"poolSelection": "FirstFit", "strategy": "FirstFit", "reclaimPolicy": "Retain", "retentionPeriod": "1s", "visibility": "Shared",
		}}},
		"ipclaims": {
			{"kind": "IPClaim", "metadata": meta("by-class"), "spec": map[string]any{"className": "hosts", "prefixLength": int64(32), "reclaimPolicy": "Delete"}},
			{"kind": "IPClaim", "metadata": meta("by-pool"), "spec": map[string]any{
				"poolRef": map[string]any{"kind": "IPPool", "name": "base"}, "cidr": "10.1.2.0/28", "ownerRef": map[string]any{"apiGroup": "", "kind": "Pod", "name": "p"},
			}},
			{"kind": "IPClaim", "metadata": meta("by-label"), "spec": map[string]any{"poolSelector": map[string]any{"matchLabels": map[string]any{"zone": "a"}}, "ipFamily": "IPv4", "prefixLength": int64(31)}},
		},
		"ipallocations": {{"kind": "IPAllocation", "metadata": meta("record"), "spec": map[string]any{
			"cidr": "10.1.3.0/28", "ipFamily": "IPv4", "poolRef": map[string]any{"kind": "IPPool", "name": "base"}, "purpose": "Claim", "state": "Bound", "reclaimPolicy": "Delete",
			"claimRef": map[string]any{"apiGroup": "ipam.cadastre.dev", "kind": "IPClaim", "name": "c"},
		}}},
	}
}

// Plurals of Cluster API's kinds.
const (
	addressClaims = "ipaddressclaims"
	addresses     = "ipaddresses"
)

func addressClaim(meta map[string]any, kind, name string) map[string]any {
	return map[string]any{"kind": "IPAddressClaim", "metadata": meta, "spec": map[string]any{"poolRef": map[string]any{"apiGroup": "ipam.cadastre.dev", "kind": kind, "name": name}}}
}

// nasty returns a value that code tends not to expect.
func nasty(random *rand.Rand) any {
	values := []any{
		nil, true, "", " ", "null", "0", "-1", "\x00", "../../etc", "%s%n", strings.Repeat("a", 300), strings.Repeat("10.0.0.0/8,", 2000), "\u202e/24", "Ｈ",
		"10.0.0.1/24", "0.0.0.0/0", "10.0.0.0/33", "255.255.255.255/32", "::/0", "2001:DB8::/32", "::ffff:10.0.0.0/104", "fe80::%eth0/64", "10.1.0.0/16",
		"10.0.0.9-10.0.0.1", "10.0.0.0-2001:db8::", "-", "-1h", "1e9h", "9999999h", "IPv5", "base", "local", "hosts", "IPPool", "IPClass", "LocalIPPool", "ipam.cadastre.dev", "ipam.cadastre.dev/held",
		int64(-1), int64(0), int64(33), int64(129), int64(1) << 31, int64(-1) << 63, 1e300, 0.5,
		[]any{}, []any{nil}, []any{"x", "x"}, []any{map[string]any{}}, map[string]any{}, map[string]any{"a": map[string]any{"b": []any{1.5}}},
		slices.Repeat([]any{"10.64.0.1"}, 100),
	}
	return values[random.IntN(len(values))]
}

// mutated returns a copy of an object with something wrong somewhere.
func mutated(object map[string]any, random *rand.Rand) map[string]any {
	changed := runtime.DeepCopyJSON(object)
	for range 1 + random.IntN(3) {
		mutate(changed, random)
	}
	return changed
}

func mutate(object map[string]any, random *rand.Rand) {
	keys := slices.Sorted(maps.Keys(object))
	if len(keys) == 0 || random.IntN(8) == 0 {
		object["surprise"] = nasty(random)
		return
	}
	key := keys[random.IntN(len(keys))]
	if inner, ok := object[key].(map[string]any); ok && random.IntN(10) > 0 {
		mutate(inner, random)
		return
	}
	switch list, isList := object[key].([]any); {
	case isList && len(list) > 0 && random.IntN(2) == 0:
		list[random.IntN(len(list))] = nasty(random)
	case random.IntN(6) == 0:
		delete(object, key)
	case random.IntN(10) == 0:
		object[key] = object[keys[random.IntN(len(keys))]]
	default:
		object[key] = nasty(random)
	}
}
