package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/provisioner"
)

const (
	// parameterTag is the parameter of a class that holds the slug of a tag: ranges are taken from the prefixes of
	// NetBox that have it and the status Container. Required.
	parameterTag = "containerTag"
	// keyField is the custom field of prefixes that holds the key.
	keyField = "ipam_key"
)

// netBox implements provisioner.Provisioner. Each range is a prefix of NetBox.
type netBox struct{ client }

// Provision implements provisioner.Provisioner. All that it reads it reads again after it created a prefix,
// because NetBox checks neither keys nor overlaps in the transaction that writes.
func (n *netBox) Provision(ctx context.Context, r provisioner.Request) (netip.Prefix, error) {
	kept, err := n.first(ctx, r.Key)
	if err != nil {
		return netip.Prefix{}, err
	}
	var created int64
	if kept.ID == 0 {
		if created, err = n.create(ctx, r); err != nil {
			return netip.Prefix{}, err
		}
		if kept, err = n.first(ctx, r.Key); err != nil {
			return netip.Prefix{}, err
		}
	}
	switch {
	case kept.ID == 0:
		return netip.Prefix{}, errors.New("the prefix was deleted from NetBox while it was created")
	case r.Range.IsValid() && kept.Prefix != r.Range:
		return netip.Prefix{}, fmt.Errorf("NetBox has %s for the key of %s", kept.title(), r.Range)
	}
	if err = n.checkOverlaps(ctx, kept); errors.Is(err, errOverlaps) && kept.ID == created {
		err = errors.Join(err, n.remove(ctx, kept))
	}
	return kept.Prefix, err
}

// Release implements provisioner.Provisioner.
func (n *netBox) Release(ctx context.Context, key string) error {
	found, err := n.withKey(ctx, key)
	for _, p := range found {
		err = errors.Join(err, n.remove(ctx, p))
	}
	return err
}

// first returns the prefix with a key that was created first, and deletes the others. It returns the zero
// prefix if there is none. NetBox numbers the prefixes of available-prefixes in the order in which they can be
// read, as a lock is held until they are written; those that are created by their range are equal.
func (n *netBox) first(ctx context.Context, key string) (prefix, error) {
	found, err := n.withKey(ctx, key)
	if err != nil || len(found) == 0 {
		return prefix{}, err
	}
	slices.SortFunc(found, func(a, b prefix) int { return cmp.Compare(a.ID, b.ID) })
	for _, p := range found[1:] {
		if err := n.remove(ctx, p); err != nil {
			return prefix{}, err
		}
	}
	return found[0], nil
}

// withKey returns the prefixes with a key. It returns an error if others are among them: NetBox ignores a filter
// that it does not know, and drops fields that it does not know.
func (n *netBox) withKey(ctx context.Context, key string) ([]prefix, error) {
	found, err := n.list(ctx, url.Values{"cf_" + keyField: {key}})
	for _, p := range found {
		if p.CustomFields.Key != key {
			return nil, fmt.Errorf("NetBox does not filter prefixes by the custom field %s: create it with the type Text and the filter logic Exact, for prefixes", keyField)
		}
	}
	return found, err
}

// create creates a prefix with the key, and returns its id.
func (n *netBox) create(ctx context.Context, r provisioner.Request) (int64, error) {
	containers, err := n.containers(ctx, r)
	if err != nil {
		return 0, err
	}
	if r.Range.IsValid() {
		return n.createAgain(ctx, r, containers)
	}
	for _, c := range containers {
		var created [1]prefix
		err := n.do(ctx, http.MethodPost, fmt.Sprintf("%d/available-prefixes/", c.ID), []any{contentOf(r, "prefix_length", r.PrefixLength)}, &created)
		if statusOf(err) == http.StatusConflict { // it has no room
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("taking a /%d from %s: %w", r.PrefixLength, c.title(), err)
		}
		return created[0].ID, nil
	}
	return 0, fmt.Errorf("no prefix of NetBox with the tag %s has room for a /%d: add one, or free ranges", r.Parameters[parameterTag], r.PrefixLength)
}

// createAgain creates the prefix that a pool has.
func (n *netBox) createAgain(ctx context.Context, r provisioner.Request, containers []prefix) (int64, error) {
	i := slices.IndexFunc(containers, func(c prefix) bool { return c.Prefix.Contains(r.Range.Addr()) })
	if i < 0 {
		return 0, fmt.Errorf("no prefix of NetBox with the status Container and the tag %s contains %s", r.Parameters[parameterTag], r.Range)
	}
	content, wanted := contentOf(r, "prefix", r.Range), prefix{Prefix: r.Range, VRF: containers[i].VRF}
	if wanted.VRF.ID != 0 {
		content["vrf"] = wanted.VRF.ID
	}
	wanted.CustomFields.Key = r.Key
	if err := n.checkOverlaps(ctx, wanted); err != nil {
		return 0, err
	}
	var created prefix
	if err := n.do(ctx, http.MethodPost, "", content, &created); err != nil {
		return 0, fmt.Errorf("creating the prefix %s: %w", r.Range, err)
	}
	return created.ID, nil
}

// contentOf returns the fields of a new prefix, of which one is given. NetBox limits descriptions to 200
// characters.
func contentOf(r provisioner.Request, field string, value any) map[string]any {
	return map[string]any{
		field: value, "status": "active", "custom_fields": map[string]string{keyField: r.Key},
		"description": fmt.Sprintf("%.200s", "Cadastre: pool of the IPClass "+r.Class),
	}
}

// containers returns the prefixes from which a range can be taken. A prefix as long as the range is none: NetBox
// would hand it out again and again, as it looks for used prefixes below it.
func (n *netBox) containers(ctx context.Context, r provisioner.Request) ([]prefix, error) {
	tag := r.Parameters[parameterTag]
	if tag == "" {
		return nil, fmt.Errorf("parameters.%s is not set: set it to the slug of the tag of prefixes in NetBox", parameterTag)
	}
	family := map[v1alpha1.IPFamily]string{v1alpha1.IPv4: "4", v1alpha1.IPv6: "6"}[r.Family]
	found, err := n.list(ctx, url.Values{"tag": {tag}, "status": {"container"}, "family": {family}})
	if err != nil {
		return nil, fmt.Errorf("reading the prefixes with the tag %s: %w", tag, err)
	}
	found = slices.DeleteFunc(found, func(p prefix) bool { return p.Prefix.Bits() >= r.PrefixLength })
	if len(found) == 0 {
		return nil, fmt.Errorf("NetBox has no %s prefix with the status Container and the tag %s that is larger than a /%d: create one", r.Family, tag, r.PrefixLength)
	}
	for _, p := range found {
		if p.VRF != found[0].VRF {
			return nil, fmt.Errorf("the prefixes of NetBox with the tag %s are in several VRFs, whose ranges may overlap: use a tag for each VRF", tag)
		}
	}
	return found, nil
}

var errOverlaps = errors.New("overlaps")

// checkOverlaps returns errOverlaps if a prefix overlaps another one of its VRF that does not have its key. It may
// be within containers.
func (n *netBox) checkOverlaps(ctx context.Context, mine prefix) error {
	for _, filter := range []string{"within_include", "contains"} {
		found, err := n.list(ctx, url.Values{filter: {mine.Prefix.String()}})
		if err != nil {
			return fmt.Errorf("reading the prefixes that overlap %s: %w", mine.Prefix, err)
		}
		for _, p := range found {
			isParent := p.Status.Value == "container" && p.Prefix.Bits() < mine.Prefix.Bits()
			if p.VRF == mine.VRF && p.CustomFields.Key != mine.CustomFields.Key && !isParent {
				return fmt.Errorf("%s %w %s of NetBox: delete one of them", mine.Prefix, errOverlaps, p.title())
			}
		}
	}
	return nil
}

// remove deletes a prefix, which may be gone.
func (n *netBox) remove(ctx context.Context, p prefix) error {
	err := n.do(ctx, http.MethodDelete, strconv.FormatInt(p.ID, 10)+"/", nil, nil)
	if err == nil || statusOf(err) == http.StatusNotFound {
		return nil
	}
	return fmt.Errorf("deleting %s: %w", p.title(), err)
}
