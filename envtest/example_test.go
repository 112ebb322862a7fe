package envtest_test

import (
	"context"
	"fmt"
	"log"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	cadastre "github.com/cadastre-dev/cadastre/envtest"
)

// A suite starts Cadastre beside the API server of controller-runtime's envtest. From then
// on a claim is answered as in a cluster: with its block, in the response to the create call.
func Example() {
	ctrl.SetLogger(logr.Discard())
	ctx := context.Background()

	env := &envtest.Environment{}
	cfg, err := env.Start()
	must(err)
	ipam, err := cadastre.Start(ctx, cfg, cadastre.Options{})
	must(err)

	must(v1alpha1.AddToScheme(env.Scheme))
	k8s, err := client.New(cfg, client.Options{Scheme: env.Scheme})
	must(err)
	must(k8s.Create(ctx, &v1alpha1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Name: "lab"},
		Spec:       v1alpha1.IPPoolSpec{PoolSpec: v1alpha1.PoolSpec{CIDR: "10.1.0.0/16"}},
	}))
	claim := &v1alpha1.IPClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceDefault, Name: "bench"},
		Spec: v1alpha1.IPClaimSpec{
			PoolRef:      &v1alpha1.PoolReference{Name: "lab"},
			PrefixLength: new(int32(24)),
		},
	}
	must(k8s.Create(ctx, claim))
	fmt.Println(claim.Status.Phase, claim.Status.AllocatedCIDR)

	must(ipam.Stop())
	must(env.Stop())
	// Output: Bound 10.1.0.0/24
}

func must(err error) {
	if err != nil {
		log.Panic(err)
	}
}
