package hub

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/provisioner"
	"github.com/cadastre-dev/cadastre/provisioner/conformance"
	"github.com/cadastre-dev/cadastre/provisioner/hub"
)

// namespace is the namespace of the cluster in the hub.
const namespace = "cluster-east"

// startHub starts a hub whose class ranges has the ranges of a pool.
func startHub(t *testing.T, cidr string) *suite.World {
	t.Helper()
	w := suite.Start(t, cluster.Options{Managers: 1, ManagerArgs: []string{"--orphan-grace=2s"}})
	w.Namespace(namespace)
	w.Created(build.Class("ranges").Obj())
	w.Pools(build.Pool("all").CIDR(cidr).Classes("ranges").Obj())
	return w
}

// startCluster starts a cluster with the overlay of config that deploys the provisioner of a hub.
func startCluster(t *testing.T) *suite.World {
	t.Helper()
	return suite.Start(t, cluster.Options{Managers: 1, Manifests: filepath.Join(suite.ModuleRoot(t), "config", "overlays", "hub-provisioner")})
}

// leased returns a class of blocks of a length whose pools are ranges of /24 of the hub.
func leased(length int32) *v1alpha1.IPClass {
	return build.Class("leased").Length(length).With(func(s *v1alpha1.IPClassSpec) {
		s.Provisioner, s.Parameters = "ipam.cadastre.dev/hub", map[string]string{"poolPrefixLength": "24", "releaseAfter": "1s", hub.ParameterClass: "ranges"}
	}).Obj()
}

func TestHubConforms(t *testing.T) {
	w := startHub(t, "10.32.0.0/22")
	conformance.Test(t, conformance.Target{
		New: func(cut func() error) (provisioner.Provisioner, error) {
			config := w.Config()
			config.Wrap(func(next http.RoundTripper) http.RoundTripper { return conformance.Transport(next, cut) })
			k8s, err := hub.NewClient(config)
			return hub.New(func() (client.Client, error) { return k8s, err }, hub.Options{Namespace: namespace}), err
		},
		Request: provisioner.Request{
			Cluster: "11111111-2222-3333-4444-555555555555", Class: "leased", Family: v1alpha1.IPv4, PrefixLength: 24,
			Parameters: map[string]string{hub.ParameterClass: "ranges"},
		},
		Ranges:  4,
		Settles: 10 * time.Second, // a record of a create that failed is released after the grace period
		Forget: func(ctx context.Context, key string) error {
			claim := &v1alpha1.IPClaim{}
			claim.Namespace, claim.Name = namespace, key
			err := client.IgnoreNotFound(w.Delete(ctx, claim))
			w.Gone(claim)
			return err
		},
	})
}

// TestClaimOfAnotherClusterIsLeftAlone covers a claim that has the name of a key, and which another cluster
// or a user made.
func TestClaimOfAnotherClusterIsLeftAlone(t *testing.T) {
	w := startHub(t, "10.32.0.0/22")
	const key = "uid.leased-a"
	claim := build.Claim(namespace, key).Class("ranges").Length(24).Obj()
	w.Created(claim)
	ranges := hub.New(func() (client.Client, error) { return hub.NewClient(w.Config()) }, hub.Options{Namespace: namespace})
	_, err := ranges.Provision(t.Context(), provisioner.Request{Key: key, Cluster: "uid", Class: "leased", Family: v1alpha1.IPv4, PrefixLength: 24})
	for call, err := range map[string]error{"Provision": err, "Release": ranges.Release(t.Context(), key)} {
		if err == nil || !strings.Contains(err.Error(), "is not of this cluster") {
			t.Errorf("%s returns %v", call, err)
		}
	}
	suite.Must(t, w.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
}

// TestWaitingClaimFollowsClass covers a class that is corrected while its claim waits in the hub, or is refused
// there.
func TestWaitingClaimFollowsClass(t *testing.T) {
	w := startHub(t, "10.32.0.0/22")
	w.Created(build.Class("empty").Obj(), build.Class("limited").With(func(s *v1alpha1.IPClassSpec) {
		s.Limits = &v1alpha1.Limits{PerProject: &v1alpha1.ProjectLimits{Addresses: new(intstr.FromInt32(16))}}
	}).Obj())
	w.Pools(build.Pool("limited").CIDR("10.33.0.0/22").Classes("limited").Obj())
	ranges := hub.New(func() (client.Client, error) { return hub.NewClient(w.Config()) }, hub.Options{Namespace: namespace})
	request := provisioner.Request{Key: "uid.leased-a", Cluster: "uid", Class: "leased", Family: v1alpha1.IPv4, PrefixLength: 24}
	for _, step := range []struct{ class, problem string }{{"limited", "limit"}, {"empty", "waits in the hub"}, {"ranges", "is made again"}, {"ranges", ""}} {
		request.Parameters = map[string]string{hub.ParameterClass: step.class}
		if _, err := ranges.Provision(t.Context(), request); (err == nil) != (step.problem == "") || err != nil && !strings.Contains(err.Error(), step.problem) {
			t.Errorf("with hubClass %s: got %v, want %q", step.class, err, step.problem)
		}
	}
}

// TestClusterGetsRangesFromHub runs a hub and a cluster with manager hub-provisioner, with the arguments and
// the account of config/overlays/hub-provisioner, and with the right to claim in one namespace of the hub: the
// claims of the cluster are bound in ranges of the hub, the hub shows which cluster has them, and they are returned,
// also after the process was killed.
func TestClusterGetsRangesFromHub(t *testing.T) {
	h, w := startHub(t, "10.32.0.0/16"), startCluster(t)
	credentials := filepath.Join(t.TempDir(), "kubeconfig")
	allowed := rest.AnonymousClientConfig(h.Config())
	suite.Must(t, cluster.WriteKubeconfig(credentials, allowed, "hub", namespace)) // not yet
	kill := runCommand(t, w, credentials)

	class := leased(26)
	w.Created(class)
	claimed := func(names ...string) (claims []*v1alpha1.IPClaim) {
		for _, name := range names {
			claims = append(claims, build.Claim("default", name).Class("leased").Obj())
			w.Created(claims[len(claims)-1])
		}
		return claims
	}
	claims := claimed("a", "b", "c", "d", "e")
	awaitFailure(w, class, provisioner.ReasonProvisionFailed, "claiming a /24 in the hub: ")
	allowed.BearerToken = tenant(h)
	suite.Must(t, cluster.WriteKubeconfig(credentials, allowed, "hub", namespace))
	w.Bound(claims...)

	system := &corev1.Namespace{}
	suite.Must(t, w.Get(t.Context(), client.ObjectKey{Name: "kube-system"}, system))
	held := &v1alpha1.IPClaimList{}
	suite.Must(t, h.List(t.Context(), held, client.MatchingLabels{v1alpha1.LabelHubCluster: "east", v1alpha1.LabelHubClass: "leased"}))
	if len(held.Items) != 2 {
		t.Errorf("the hub has %d claims of the cluster, want 2", len(held.Items))
	}
	for _, claim := range held.Items {
		if claim.Annotations[hub.AnnotationClusterUID] != string(system.UID) || !strings.HasPrefix(claim.Name, string(system.UID)+".leased-") {
			t.Errorf("the claim %s has the annotations %v, want the UID of the cluster, %s", claim.Name, claim.Annotations, system.UID)
		}
	}
	kill()
	claims = append(claims, claimed("f", "g", "h", "i")...) // one more than there is room for
	runCommand(t, w, credentials)
	w.Bound(claims...)
	for _, claim := range claims {
		w.Deleted(claim)
	}
	h.Await("the return of all ranges", func(ctx context.Context) bool {
		suite.Must(t, h.List(ctx, held))
		return len(held.Items) == 0
	})
}

// awaitFailure waits until the condition of a class reports a failure with a part of a message.
func awaitFailure(w *suite.World, class *v1alpha1.IPClass, reason, message string) {
	w.Helper()
	w.Await(reason+": "+message, func(ctx context.Context) bool {
		suite.Must(w, w.Get(ctx, client.ObjectKeyFromObject(class), class))
		condition := meta.FindStatusCondition(class.Status.Conditions, provisioner.ConditionProvisioned)
		return condition != nil && condition.Reason == reason && strings.Contains(condition.Message, message)
	})
}

// tenant returns the token of an account that can claim in the namespace, as the documentation states.
func tenant(h *suite.World) string {
	h.Helper()
	named := metav1.ObjectMeta{Namespace: namespace, Name: "east"}
	h.Created(
		&corev1.ServiceAccount{ObjectMeta: named},
		&rbacv1.Role{ObjectMeta: named, Rules: []rbacv1.PolicyRule{{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"ipclaims"}, Verbs: []string{"create", "delete", "get"}}}},
		&rbacv1.RoleBinding{
			ObjectMeta: named, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: named.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: named.Name}},
		},
	)
	return token(h, named)
}

// token returns a token of a ServiceAccount.
func token(w *suite.World, account metav1.ObjectMeta) string {
	w.Helper()
	request := &authenticationv1.TokenRequest{}
	suite.Must(w, w.SubResource("token").Create(w.Context(), &corev1.ServiceAccount{ObjectMeta: account}, request))
	return request.Status.Token
}

// runCommand runs the container of the Deployment, with the kubeconfig in place of its Secret, until it is
// killed, or the test ends.
func runCommand(t *testing.T, w *suite.World, credentials string) (kill func()) {
	t.Helper()
	deployment := &appsv1.Deployment{}
	suite.Must(t, w.Get(t.Context(), client.ObjectKey{Namespace: "cadastre-system", Name: "cadastre-hub-provisioner"}, deployment))
	pod := deployment.Spec.Template.Spec
	own, kubeconfig := rest.AnonymousClientConfig(w.Config()), filepath.Join(t.TempDir(), "cluster")
	own.BearerToken = token(w, metav1.ObjectMeta{Namespace: deployment.Namespace, Name: pod.ServiceAccountName})
	suite.Must(t, cluster.WriteKubeconfig(kubeconfig, own, "cluster", ""))
	inPod := strings.NewReplacer("$("+pod.Containers[0].Env[0].Name+")", deployment.Namespace, pod.Containers[0].VolumeMounts[0].MountPath, filepath.Dir(credentials))
	args := []string{"--hub-timeout=10s"}
	for _, arg := range pod.Containers[0].Args[1:] { // after the command
		args = append(args, inPod.Replace(arg))
	}
	p, err := w.NewHubProvisioner("hub-provisioner", args...)
	suite.Must(t, err)
	p.Env = []string{"KUBECONFIG=" + kubeconfig}
	suite.Must(t, p.Start(t.Context()))
	kill = sync.OnceFunc(func() { suite.Must(t, p.Kill()) })
	t.Cleanup(kill)
	return kill
}
