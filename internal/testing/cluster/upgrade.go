package cluster

import "context"

// Upgrade installs the manifests of this module over those that were installed before, CRDs
// first, while all managers run. Managers that are added from then on run the build of this
// module.
func (c *Cluster) Upgrade(ctx context.Context) error {
	c.options.Manifests, c.options.ManagerBinary = "", ""
	if err := c.Install(ctx, "config/crd"); err != nil {
		return err
	}
	return c.installOperator(ctx)
}

// AddManager starts one more replica, and returns when it is ready and behind the
// balancer.
func (c *Cluster) AddManager(ctx context.Context) (*Manager, error) {
	config, err := c.OperatorConfig(ctx)
	if err != nil {
		return nil, err
	}
	port, err := c.free.next()
	if err != nil {
		return nil, err
	}
	if err := c.prepareManager(ctx, config, loopback(port)); err != nil {
		return nil, err
	}
	added := c.Managers[len(c.Managers)-1]
	if err := added.Start(ctx); err != nil {
		return nil, err
	}
	c.Balancer.Add(added.WebhookAddress)
	return added, nil
}
