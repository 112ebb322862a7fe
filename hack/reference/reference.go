// Package reference writes the reference of the kubectl plug-in from its commands. Its tests check
// the files that are packaged with the plug-in against the commands.
package reference

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
)

// Write writes one page for each command into a directory, and removes the pages of commands that
// no longer exist.
func Write(dir string) error {
	old, err := filepath.Glob(filepath.Join(dir, "kubectl_ipam*.md"))
	if err != nil {
		return err
	}
	for _, page := range old {
		if err := os.Remove(page); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return doc.GenMarkdownTree(plugin(), dir)
}

// plugin returns the plug-in with all its commands.
func plugin() *cobra.Command {
	root := app.New(genericiooptions.NewTestIOStreamsDiscard())
	root.DisableAutoGenTag = true
	root.InitDefaultCompletionCmd()
	return root
}

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
