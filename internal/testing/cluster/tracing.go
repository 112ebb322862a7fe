package cluster

import (
	"fmt"
	"os"
)

// trace makes etcd and the API server send their traces to a collector.
func (c *Cluster) trace(to string) error {
	c.plane.Etcd.Configure().
		Set("enable-distributed-tracing", "true").
		Set("distributed-tracing-address", to).
		Set("distributed-tracing-sampling-rate", "1000000")
	path := c.files.in("tracing.yaml")
	c.plane.APIServer.Configure().Set("tracing-config-file", path)
	return os.WriteFile(path, fmt.Appendf(nil, `apiVersion: apiserver.config.k8s.io/v1
kind: TracingConfiguration
endpoint: %s
samplingRatePerMillion: 1000000
`, to), 0o600)
}
