package inventory

import (
	"cmp"
	"slices"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// ClassesFor are the classes that a request may name, by name. Of several defaults of one
// family only the one that counts for the request is one.
func (c *Catalogue) ClassesFor(req ipam.Request) []ClassEntry {
	req, err := c.onBehalf(req)
	if err != nil {
		return nil
	}
	mayUse := func(class ClassEntry) bool { return req.Tenant.MayUse(class.Visibility, class.Project) }
	defaults := map[string]bool{}
	for _, family := range []ipam.Family{ipam.IPv4, ipam.IPv6} {
		if class, ok := c.DefaultClass(family, mayUse); ok {
			defaults[class.Name] = true
		}
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	var classes []ClassEntry
	for name, class := range c.classes {
		if mayUse(class) {
			class.Default = defaults[name]
			classes = append(classes, class)
		}
	}
	slices.SortFunc(classes, func(a, b ClassEntry) int { return cmp.Compare(a.Name, b.Name) })
	return classes
}

// ClassLimits are the limits of the classes that have one, by class.
func (c *Catalogue) ClassLimits() map[string]ipam.Limit {
	c.mu.RLock()
	defer c.mu.RUnlock()
	limits := map[string]ipam.Limit{}
	for name, class := range c.classes {
		if class.Limit.IsSet() {
			limits[name] = class.Limit
		}
	}
	return limits
}
