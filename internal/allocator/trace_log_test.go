package allocator

import (
	"errors"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

func TestLogHasPoolsOfRequest(t *testing.T) {
	var lines []string
	ctx := log.IntoContext(t.Context(), funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{Verbosity: stepLevel}))
	claim := ipam.Name{Namespace: "ns", Name: "x"}
	res := inventory.Resolution{
		Terms: ipam.Terms{Class: "gold", Length: 28}, Pools: []ipam.Pool{parent()},
		PassedOver: []ipam.PoolResult{{Pool: ipam.PoolNamed("other"), Err: errors.New("paused")}},
	}
	traceResolution(ctx, ipam.Request{Claim: claim}, res, nil)
	runOnReplica(t, func(t *testing.T, a *Allocator, _ *steady) {
		_, err := a.Resolve(ctx, ipam.Request{Claim: claim, Single: true, Pool: ipam.PoolNamed("none")})
		if !errors.Is(err, ipam.ErrNotSynced) {
			t.Errorf("the namespace is not known: got %v", err)
		}
	})
	want := []string{
		`"level"=2 "msg"="Passed over a pool" "claim"="IPClaim ns/x" "pool"="pool other" "reason"="paused"`,
		`"level"=2 "msg"="Resolved a request" "claim"="IPClaim ns/x" "class"="gold" "length"=28 "pools"=["pool parent"]`,
		`"level"=2 "msg"="Resolved a request" "claim"="IPAddressClaim ns/x" "class"="" "length"=0 "pools"=[] "reason"="the namespace ns has not been seen: ` + ipam.ErrNotSynced.Error() + `"`,
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("the log differs (-want +got):\n%s", diff)
	}
}
