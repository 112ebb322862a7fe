package cluster

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// auditPolicy has the API server note what the operator asks of it, and nothing
// else.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: ["system:serviceaccount:` + Namespace + `:` + ServiceAccount + `"]
- level: None
`

// Audited is one request of the operator, as the API server noted it.
type Audited struct {
	Verb      string
	ObjectRef struct {
		APIGroup, Resource, Subresource, Namespace, Name string
	}
	RequestURI     string
	ResponseStatus struct{ Code int }
	Annotations    map[string]string
}

// Forbidden reports whether the operator had no right to ask for that.
func (a Audited) Forbidden() bool { return a.Annotations["authorization.k8s.io/decision"] == "forbid" }

// audit turns the API server's audit log on. To be called before it starts.
func (c *Cluster) audit() error {
	policy := c.files.in("auth", "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return err
	}
	c.plane.APIServer.Configure().
		Set("audit-policy-file", policy).
		Set("audit-log-path", c.files.logPath("audit"))
	return nil
}

// Audit is all that the operator has asked of the API server so far, where
// Options.Audit said so.
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
