package cluster

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// auditPolicy makes the API server log the requests of the operator, and nothing else.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: ["system:serviceaccount:` + Namespace + `:` + ServiceAccount + `"]
- level: None
`

// Audited represents one request of the operator, as the API server logged it.
type Audited struct {
	Verb      string
	ObjectRef struct {
		APIGroup, Resource, Subresource, Namespace, Name string
	}
	RequestURI     string
	ResponseStatus struct{ Code int }
	Annotations    map[string]string
}

// Forbidden reports whether the operator had no right to make the request.
func (a Audited) Forbidden() bool { return a.Annotations["authorization.k8s.io/decision"] == "forbid" }

// audit turns the API server's audit log on. It must be called before the API server starts.
func (c *Cluster) audit() error {
	policy := c.files.pathTo("auth", "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return err
	}
	c.plane.APIServer.Configure().
		Set("audit-policy-file", policy).
		Set("audit-log-path", c.files.logPath("audit"))
	return nil
}

// Audit returns all requests that the operator has made to the API server so far, if
// Options.Audit is set.
func (c *Cluster) Audit() ([]Audited, error) {
	log, err := os.Open(c.files.logPath("audit"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	return readAudit(log)
}

// readAudit reads the lines of an audit log that is being written: the last one counts when it
// is complete.
func readAudit(log io.Reader) ([]Audited, error) {
	var all []Audited
	lines := bufio.NewReader(log)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		var one Audited
		if err := json.Unmarshal(line, &one); err != nil {
			return nil, fmt.Errorf("reading the audit log: %w", err)
		}
		all = append(all, one)
	}
}
