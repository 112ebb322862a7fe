// Package reference writes the reference of the kubectl plug-in from its commands. Its tests check
// the files that are packaged with the plug-in against the commands.
package reference

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app"
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
