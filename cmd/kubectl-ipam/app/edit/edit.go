// Package edit holds the commands that change objects: create, claim, release, pause, resume and
// default-class.
package edit

import (
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
)

// editing holds the flags that all these commands have, and the cluster in which one run changes
// objects.
type editing struct {
	*command.Env
	dryRun command.DryRun
	output *command.Output

	client    client.WithWatch
	namespace string
}

// bindEditing binds the flags that all these commands have.
func bindEditing(e *command.Env, cmd *cobra.Command) *editing {
	edits := &editing{Env: e, output: command.BindOutput(cmd)}
	command.BindDryRun(cmd, &edits.dryRun)
	return edits
}

// connect sets the client and the namespace.
func (e *editing) connect() (err error) {
	if e.client, err = e.Client(); err != nil {
		return err
	}
	e.namespace, err = e.Namespace()
	return err
}

func (e *editing) createOptions() *client.CreateOptions {
	return &client.CreateOptions{DryRun: e.dryRun.OnServer()}
}

func (e *editing) patchOptions() *client.PatchOptions {
	return &client.PatchOptions{DryRun: e.dryRun.OnServer()}
}

// say prints an object with the action that was done with it.
func (e *editing) say(obj client.Object, done string) error {
	return e.Print(e.output, command.Outcome(obj, done))
}

// sayCreated prints an object that was created; one that --dry-run=client made, as a manifest.
func (e *editing) sayCreated(obj client.Object) error {
	created := command.Outcome(obj, e.dryRun.Done("created"))
	created.AsManifest = e.dryRun == command.DryRunClient
	return e.Print(e.output, created)
}

// texts returns cells of a table, with a dash for each empty text.
func texts(all ...string) []command.Cell {
	var cells []command.Cell
	for _, text := range all {
		cells = append(cells, command.Cell{Text: command.OrNone(text)})
	}
	return cells
}

// noAnswer is the reason of an object that has no condition Ready.
const noAnswer = "NoAnswer"

// readyOf returns the reason and the message of the condition Ready.
func readyOf(conditions []metav1.Condition) (reason, message string) {
	if ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); ready != nil {
		return ready.Reason, ready.Message
	}
	return noAnswer, "no operator has answered it: see whether Cadastre runs"
}
