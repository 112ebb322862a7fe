package plugin

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/bundle"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/hack/reference"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// rightsShown has command lines that need all rights of each command. Writes are dry runs.
var rightsShown = map[string][]string{
	"check":          {"kubectl ipam check"},
	"claim":          {"kubectl ipam claim -n team-a --pool core --length 30 --dry-run=server", "kubectl ipam claim -n team-a --name apps --class subnets --length 24"},
	"classes":        {"kubectl ipam classes -n team-a", "kubectl ipam classes subnets -n team-a"},
	"create class":   {"kubectl ipam create class another --family IPv4 --dry-run=server"},
	"create pool":    {"kubectl ipam create pool another --cidr 172.20.0.0/16 --dry-run=server"},
	"default-class":  {"kubectl ipam default-class subnets"},
	"doctor":         {"kubectl ipam doctor -n team-a"},
	"explain":        {"kubectl ipam explain vip-2 -n team-a", "kubectl ipam explain ipaddressclaim/machine-0 -n team-a", "kubectl ipam explain cluster/prod -n team-a"},
	"free":           {"kubectl ipam free core"},
	"map":            {"kubectl ipam map core"},
	"pause":          {"kubectl ipam pause lab --dry-run=server"},
	"pools":          {"kubectl ipam pools"},
	"release":        {"kubectl ipam release apps -n team-a --yes --dry-run=server"},
	"resume":         {"kubectl ipam resume lab --dry-run=server"},
	"support-bundle": {"kubectl ipam support-bundle -o $DIR/rights.zip"},
	"tree":           {"kubectl ipam tree"},
	"version":        {"kubectl ipam version"},
	"who":            {"kubectl ipam who 10.1.0.1"},
}

// rights runs each command with just the rights that are documented for it, and without any.
func (w *world) rights(t *testing.T) {
	w.operatorPod(t)
	all := map[string]reference.Needs{}
	for _, needs := range reference.Rights() {
		all[needs.Command] = needs
	}
	for _, needs := range reference.Rights() {
		if needs.Command == "ui" {
			continue // it does not end by itself: test/e2e/ui runs it with its rights
		}
		t.Run(needs.Command, func(t *testing.T) {
			lines := rightsShown[needs.Command]
			if len(lines) == 0 {
				t.Fatal("no command line shows the rights that it needs")
			}
			for _, other := range needs.Like {
				needs.Wanted, needs.Operator = append(needs.Wanted, all[other].Wanted...), append(needs.Operator, all[other].Operator...)
			}
			name := "only-" + strings.ReplaceAll(needs.Command, " ", "-")
			w.grantRights(name, append(needs.Needed, needs.Wanted...), needs.Operator)
			for _, line := range lines {
				terminal := w.as(t, name)
				ran := terminal.runs(line)
				if lacking := append(lacks(ran), terminal.unread()...); ran.code == command.ExitForbidden || len(lacking) > 0 {
					t.Errorf("%s: exit code %d, for lack of rights: %q\n%s%s", line, ran.code, lacking, ran.out, ran.err)
				}
				terminal = w.as(t, "no-rights")
				ran = terminal.runs(line)
				if len(needs.Needed) > 0 && ran.code != command.ExitForbidden {
					t.Errorf("%s: exit code %d without any right, want %d\n%s%s", line, ran.code, command.ExitForbidden, ran.out, ran.err)
				}
				if len(needs.Needed) == 0 && len(lacks(ran))+len(terminal.unread()) == 0 {
					t.Errorf("%s: does not say that something is missing\n%s%s", line, ran.out, ran.err)
				}
			}
		})
	}
}

// lacks returns the lines by which a command reports a missing right. That the user has no role of
// ours in full is no right that doctor lacks.
func lacks(r *ran) []string {
	var all []string
	for line := range strings.Lines(r.out + r.err) {
		if (strings.Contains(line, "may not") || strings.Contains(line, "forbidden")) && !strings.Contains(line, "you have some of ipam-") {
			all = append(all, line)
		}
	}
	return all
}

// unread returns the parts that the bundle of the terminal, if there is one, lacks because of
// rights.
func (r *terminal) unread() []string {
	r.t.Helper()
	path := filepath.Join(r.dir, "rights.zip")
	if _, err := os.Stat(path); err != nil {
		return nil
	}
	var all []string
	files := unpacked(r.t, path)
	var index bundle.Index
	suite.Must(r.t, yaml.Unmarshal([]byte(files["index.yaml"]), &index))
	for _, unread := range index.Unread {
		if strings.Contains(unread.Why, "forbidden") || strings.Contains(unread.Why, "may not") {
			all = append(all, unread.What+": "+unread.Why)
		}
	}
	for _, report := range []string{"version.yaml", "doctor.yaml", "check.yaml"} {
		all = append(all, lacks(&ran{out: files[report]})...)
	}
	return all
}

// grantRights gives a user rights in the whole cluster, and in the operator's namespace, and waits until
// the API server has seen them.
func (w *world) grantRights(user string, everywhere, operator []rbacv1.PolicyRule) {
	w.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: user}, Rules: operator}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}
	w.Created(
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: everywhere}, role,
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: user}, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		},
		&rbacv1.RoleBinding{
			ObjectMeta: role.ObjectMeta, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		},
	)
	w.awaitRight(user, "", everywhere)
	w.awaitRight(user, cluster.Namespace, operator)
}

// awaitRight waits until a user has the last of some rights.
func (w *world) awaitRight(user, namespace string, rules []rbacv1.PolicyRule) {
	w.Helper()
	if len(rules) == 0 {
		return
	}
	last := rules[len(rules)-1]
	resource, sub, _ := strings.Cut(last.Resources[0], "/")
	w.Await(user+" has its rights", func(ctx context.Context) bool {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Group: last.APIGroups[0], Resource: resource, Subresource: sub, Verb: last.Verbs[0],
		}}}
		return w.Create(ctx, review) == nil && review.Status.Allowed
	})
}
