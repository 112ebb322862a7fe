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
	for _, of := range command.Rights() {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", of.Command, rules(of.Needed), wanted(of))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func wanted(of command.Needs) string {
	text := rules(of.Wanted)
	if len(of.Operator) > 0 {
		text += "; in the operator's namespace: " + rules(of.Operator)
	}
	if len(of.Like) > 0 {
		text += "; and what `" + strings.Join(of.Like, "`, `") + "` ask for, whose reports it has"
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
