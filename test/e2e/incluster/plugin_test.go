package incluster

import (
	"bytes"
	"fmt"
	"strings"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
)

// prints runs a command of the kubectl plug-in, and fails the test unless the output has all of the texts,
// in which spaces stand for any number of them.
func (w *world) prints(line string, texts ...string) (output string, code command.ExitCode) {
	w.Helper()
	var out, errs bytes.Buffer
	args := append(strings.Fields(line), "--kubeconfig="+w.Kubeconfig())
	code = app.Run(w.Context(), args, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errs})
	output = strings.Join(strings.Fields(out.String()+errs.String()), " ")
	for _, text := range texts {
		if !strings.Contains(output, text) {
			w.Errorf("kubectl ipam %s does not print %q:\n%s%s", line, text, out.String(), errs.String())
		}
	}
	return output, code
}

// agrees fails the test if `kubectl ipam check` finds anything.
func (w *world) agrees() {
	w.Helper()
	if output, code := w.prints("check"); code != command.ExitDone {
		w.Errorf("kubectl ipam check ends with %d: %s", code, output)
	}
}

func (w *world) isShown() {
	var addresses []string
	for i := range 100 {
		addresses = append(addresses, fmt.Sprintf("10.8.0.%d", 2*i+1))
	}
	shown := pool("shown", 24, addresses...)
	global := &incluster.GlobalInClusterIPPool{Spec: pool("", 24, "10.8.1.10-10.8.1.19").Spec}
	global.Name = "shown-to-all"
	vm := claim("vm", "shown")
	w.Created(shown, global, vm)
	w.Served(vm)
	w.counted(shown, "100", "99", "1")
	w.counted(global, "10", "10", "0")
	w.prints("who 10.8.0.1", "InClusterIPPool site/shown 10.8.0.1/32 Bound IPAddressClaim site/vm")
	w.prints("who 10.8.0.3", "InClusterIPPool site/shown 10.8.0.3/32 Free")
	w.prints("who 10.8.1.10", "GlobalInClusterIPPool shown-to-all 10.8.1.10/32 Free")
	w.prints("tree", "ranges of 10.8.0.0/24 InClusterIPPool site/shown Ready 1%", "10.8.0.1/32 IPAddressClaim site/vm Bound")
	w.prints("pools", "InClusterIPPool site/shown ranges of 10.8.0.0/24", "1% 1 0 99", "GlobalInClusterIPPool shown-to-all")
	w.prints("map shown -n site", "10.8.0.1 #-.-.-")
	w.prints("free globalinclusterippool/shown-to-all", "10.8.1.10/32")
	w.prints("explain vm -n site", "10.8.0.1/32", "pool site/shown")
	w.prints("doctor", "in-cluster-provider ok Cadastre hands out the addresses of 2 pools, and the provider does not run")
	w.agrees()
	w.Deleted(vm)
	w.Gone(vm)
	w.Deleted(shown, global)
	w.Gone(shown, global)
}

// isShownAsProvided has a claim of a pool that the in-cluster provider serves.
func (w *world) isShownAsProvided(pool string) {
	w.Helper()
	w.prints("pools -o wide", "InClusterIPPool site/"+pool, string(v1alpha1.PoolPaused))
	w.prints("doctor", "in-cluster-provider warning", "the provider runs: it hands out the addresses of 1 pool, and Cadastre does not")
	w.agrees()
}
