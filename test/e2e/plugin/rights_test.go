package plugin

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/internal/cli"
)

// rightsShown are command lines that need all rights of each command. What they write is a
// dry run.
var rightsShown = map[string][]string{
	"check":         {"kubectl ipam check"},
	"claim":         {"kubectl ipam claim -n team-a --pool core --length 30 --dry-run=server", "kubectl ipam claim -n team-a --name apps --class subnets --length 24"},
	"create class":  {"kubectl ipam create class another --family IPv4 --dry-run=server"},
	"create pool":   {"kubectl ipam create pool another --cidr 172.20.0.0/16 --dry-run=server"},
	"default-class": {"kubectl ipam default-class subnets"},
	"explain":       {"kubectl ipam explain vip-2 -n team-a", "kubectl ipam explain ipaddressclaim/machine-0 -n team-a"},
	"free":          {"kubectl ipam free core"},
	"map":           {"kubectl ipam map core"},
	"pause":         {"kubectl ipam pause lab --dry-run=server"},
	"pools":         {"kubectl ipam pools"},
	"release":       {"kubectl ipam release apps -n team-a --yes --dry-run=server"},
	"resume":        {"kubectl ipam resume lab --dry-run=server"},
	"tree":          {"kubectl ipam tree"},
	"who":           {"kubectl ipam who 10.1.0.1"},
}

// rights has each command run with just the rights that are documented for it, and without
// any.
func (w *world) rights(t *testing.T) {
	for _, of := range cli.Rights() {
		t.Run(of.Command, func(t *testing.T) {
			lines := rightsShown[of.Command]
			if len(lines) == 0 {
				t.Fatal("no command line shows what it needs")
			}
			name := "only-" + strings.ReplaceAll(of.Command, " ", "-")
			w.may(name, append(of.Needed, of.Wanted...))
			for _, line := range lines {
				if ran := w.as(t, name).runs(line); ran.code == cli.ExitForbidden || strings.Contains(ran.err, "may not") || strings.Contains(ran.err, "forbidden") {
					t.Errorf("%s: exit code %d\n%s%s", line, ran.code, ran.out, ran.err)
				}
				ran := w.as(t, "nobody-at-all").runs(line)
				if len(of.Needed) > 0 && ran.code != cli.ExitForbidden {
					t.Errorf("%s: exit code %d without any right, want %d\n%s%s", line, ran.code, cli.ExitForbidden, ran.out, ran.err)
				}
				if len(of.Needed) == 0 && !strings.Contains(ran.err, "may not") {
					t.Errorf("%s: does not say that something is missing\n%s%s", line, ran.out, ran.err)
				}
			}
		})
	}
}

// may gives a user rights in the whole cluster.
func (w *world) may(user string, rules []rbacv1.PolicyRule) {
	w.Created(
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: rules},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: user},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		},
	)
}
