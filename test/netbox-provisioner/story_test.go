package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// TestClusterGetsRangesFromNetBox runs the command beside the operator: claims are bound in ranges of NetBox, which
// are returned when they are empty.
func TestClusterGetsRangesFromNetBox(t *testing.T) {
	w, f := suite.Start(t, cluster.Options{Managers: 1}), newFakeNetBox(t)
	f.add(container("10.64.0.0/16", "pods"))
	w.Namespace("netbox")
	kubeconfig, token := filepath.Join(t.TempDir(), "kubeconfig"), filepath.Join(t.TempDir(), "token")
	suite.Must(t, cluster.WriteKubeconfig(kubeconfig, w.Config(), "east", "netbox"))
	suite.Must(t, os.WriteFile(token, []byte(secret), 0o600))
	t.Setenv("KUBECONFIG", kubeconfig)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	running.Go(func() {
		if err := run(ctx, []string{"--namespace=netbox", "--netbox-url=" + f.URL, "--token-file=" + token}); err != nil && ctx.Err() == nil {
			t.Errorf("the provisioner ends: %v", err)
		}
	})

	w.Created(build.Class("leased").Length(26).With(func(s *v1alpha1.IPClassSpec) {
		s.Provisioner, s.Parameters = "ipam.example.com/netbox", map[string]string{"poolPrefixLength": "24", "releaseAfter": "1s", parameterTag: "pods"}
	}).Obj())
	var claims []*v1alpha1.IPClaim
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		claims = append(claims, build.Claim("default", name).Class("leased").Obj())
		w.Created(claims[len(claims)-1])
	}
	w.Bound(claims...)
	if got := f.prefixes(); strings.Count(got, "leased") != 2 || !strings.Contains(got, " 10.64.0.0/24") || !strings.Contains(got, " 10.64.1.0/24") {
		t.Errorf("NetBox has %s, want two /24 for five /26", got)
	}
	for _, claim := range claims {
		w.Deleted(claim)
	}
	w.Await("the return of all ranges", func(context.Context) bool { return f.prefixes() == "" })
}
