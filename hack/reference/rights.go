package reference

import (
	"fmt"
	"io"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
)

// WriteRights writes the rights of all commands as a table.
func WriteRights(out io.Writer) error {
	var b strings.Builder
	b.WriteString("| command | needs | asks for, if it may |\n|---|---|---|\n")
	for _, needs := range command.Rights() {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", needs.Command, rules(needs.Needed), wanted(needs))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func wanted(needs command.Needs) string {
	text := rules(needs.Wanted)
	if len(needs.Operator) > 0 {
		text += "; in the operator's namespace: " + rules(needs.Operator)
	}
	if len(needs.Like) > 0 {
		text += "; and what `" + strings.Join(needs.Like, "`, `") + "` ask for, whose reports it has"
	}
	return text
}

func rules(all []rbacv1.PolicyRule) string {
	if len(all) == 0 {
		return "-"
	}
	var parts []string
	for _, rule := range all {
		resources := make([]string, len(rule.Resources))
		for i, resource := range rule.Resources {
			resources[i] = "`" + resource + "`"
			if group := rule.APIGroups[0]; group != "" && group != "ipam.cadastre.dev" {
				resources[i] = "`" + resource + "." + group + "`"
			}
		}
		parts = append(parts, strings.Join(rule.Verbs, ", ")+" "+strings.Join(resources, ", "))
	}
	return strings.Join(parts, "; ")
}
