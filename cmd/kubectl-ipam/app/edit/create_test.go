package edit

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
)

// created returns the manifest that `create pool` writes, or its error.
func created(args ...string) (string, error) {
	var out, errOut strings.Builder
	e := command.NewEnv(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut})
	cmd := newCreatePool(e)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append([]string{"p", "--dry-run=client", "-o", "yaml"}, args...))
	err := cmd.Execute()
	return out.String(), err
}

func TestCreatedPoolOccupiesItsRanges(t *testing.T) {
	manifest, err := created("--cidr=192.0.2.0/24", "--occupies=Ranges", "--range=192.0.2.10-192.0.2.50,192.0.2.64/28", "--range=192.0.2.99")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"cidr: 192.0.2.0/24", "occupies: Ranges", "ranges:\n  - 192.0.2.10-192.0.2.50\n  - 192.0.2.64/28\n  - 192.0.2.99\n"} {
		if !strings.Contains(manifest, want) {
			t.Errorf("the manifest lacks %q:\n%s", want, manifest)
		}
	}
	manifest, err = created("--cidr=192.0.2.0/24", "--range=192.0.2.99")
	if err != nil || strings.Contains(manifest, "occupies") {
		t.Errorf("without the flag: error %v, and the manifest\n%s", err, manifest)
	}
}

func TestCreatedPoolNeedsSubnetAndRangesToOccupy(t *testing.T) {
	for name, args := range map[string][]string{
		"no subnet": {"--parent=core", "--length=24", "--range=192.0.2.10"},
		"no ranges": {"--cidr=192.0.2.0/24"},
	} {
		if _, err := created(append(args, "--occupies=Ranges")...); command.CodeOf(err) != command.ExitUsage || !strings.Contains(err.Error(), "set --cidr and --range") {
			t.Errorf("%s: got %v, want an error that names the flags", name, err)
		}
	}
}

func TestOccupiesIsCompleted(t *testing.T) {
	complete, ok := newCreatePool(command.NewEnv(genericiooptions.IOStreams{})).GetFlagCompletionFunc("occupies")
	if !ok {
		t.Fatal("the flag has no completion")
	}
	if got, _ := complete(nil, nil, ""); !slices.Equal(got, []string{string(v1alpha1.OccupiesCIDR), string(v1alpha1.OccupiesRanges)}) {
		t.Errorf("completed as %q", got)
	}
}
