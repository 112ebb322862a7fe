package messages

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// kindOf returns the kind of a resource that policies are about. A LocalIPPool is answered like
// an IPPool.
func kindOf(resource string) string {
	return map[string]string{
		"ipclaims": "IPClaim", "ippools": "IPPool", "localippools": "IPPool", "ipaddressclaims": "IPAddressClaim", "ipallocations": "IPAllocation",
	}[resource]
}

// Policies returns the rows of the policies, from the root of the module.
func Policies(root fs.FS) ([]Row, error) {
	rows, err := eachFile(root, "config/policy/*.yaml", policiesIn)
	return slices.Concat(rows...), err
}

func policiesIn(text []byte) ([]Row, error) {
	var rows []Row
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		policy := &admissionv1.ValidatingAdmissionPolicy{}
		err := documents.Decode(policy)
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return nil, err
		}
		if policy.Kind != "ValidatingAdmissionPolicy" {
			continue
		}
		for _, validation := range policy.Spec.Validations {
			for _, object := range objectsOf(policy.Spec.MatchConstraints.ResourceRules, validation.Message) {
				on := "update"
				if strings.Contains(validation.Expression, "request.operation == 'UPDATE'") {
					on = "create"
				}
				rows = append(rows, Row{Object: object, On: on, Answer: "403 Forbidden", Message: validation.Message})
			}
		}
	}
}

// objectsOf returns the kinds that a message of a policy is about: the kinds that the policy is
// for, or the claim alone if the message is about a field that only a claim has.
func objectsOf(rules []admissionv1.NamedRuleWithOperations, message string) []string {
	var kinds []string
	for _, rule := range rules {
		for _, resource := range rule.Resources {
			kinds = append(kinds, kindOf(resource))
		}
	}
	slices.Sort(kinds)
	kinds = slices.Compact(kinds)
	if strings.HasPrefix(message, "spec.") { // a claim of Cluster API has no such field
		kinds = slices.DeleteFunc(kinds, func(kind string) bool { return kind == "IPAddressClaim" })
	}
	if slices.Contains(kinds, "IPClaim") && (strings.HasPrefix(message, "status:") || strings.HasPrefix(message, "spec.allocationName:")) {
		return []string{"IPClaim"}
	}
	return kinds
}
