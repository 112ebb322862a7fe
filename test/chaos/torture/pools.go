package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/chaos/torture/witness"
)

// children is the number of names of child pools. All pool actors compete for them, and claims name
// them.
const children = 8

func childName(random *rand.Rand) string { return fmt.Sprintf("child-%d", random.IntN(children)) }

// poolActor makes child pools, by length or by CIDR, and deletes them with their claims. There are
// few pools, and to list the claims of one costs the API server more than a claim does: it takes
// its time.
type poolActor struct {
	*party
	random   *rand.Rand
	existing map[string]bool // as far as it knows: others make and delete them too
}

func newPoolActor(p *party, _ int, random *rand.Rand) actor {
	return &poolActor{p, random, map[string]bool{}}
}

// act implements actor.
func (a *poolActor) act(ctx context.Context) error {
	defer wait(ctx, between(a.random, 100*time.Millisecond, 300*time.Millisecond))
	name := childName(a.random)
	if !a.existing[name] {
		err := a.make(ctx, name)
		a.existing[name] = !isRefusal(err) || apierrors.IsAlreadyExists(err)
		return err
	}
	err := a.end(ctx, build.Pool(name).Obj())
	a.existing[name] = !apierrors.IsNotFound(err)
	return err
}

func (a *poolActor) make(ctx context.Context, name string) error {
	length := 22 + a.random.IntN(6)
	b := build.Pool(name).Child(poolParent, int32(length))
	how := fmt.Sprintf("/%d", length)
	asked := a.random.IntN(4) == 0
	if asked {
		addr := netip.AddrFrom4([4]byte{10, 80, byte(a.random.IntN(4)), byte(a.random.IntN(256))})
		how = netip.PrefixFrom(addr, length).Masked().String()
		b.CIDR(how)
	}
	pool := b.Obj()
	if asked {
		pool.Annotations = map[string]string{witness.AskedAnnotation: "yes"}
	}
	return a.try(ctx, attempt{what: "create IPPool " + name + " " + how, obj: pool, do: func(ctx context.Context) error {
		return a.Create(ctx, pool)
	}})
}

// end deletes a pool. While it has claims, that is refused; then it deletes some
// of those first.
func (a *poolActor) end(ctx context.Context, pool *v1alpha1.IPPool) error {
	err := a.remove(ctx, pool)
	if !apierrors.IsConflict(err) {
		return err
	}
	claims := &v1alpha1.IPClaimList{}
	if err := a.List(ctx, claims, client.MatchingFields{"spec.poolRef.name": pool.Name}); err != nil {
		return err
	}
	for i := range claims.Items {
		if err := a.remove(ctx, &claims.Items[i]); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}
