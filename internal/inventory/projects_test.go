package inventory

import (
	"slices"
	"testing"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

func TestNamespaceIsProjectOfItsNameUnlessLabelIsUsed(t *testing.T) {
	c := New(Options{Ledger: emptyLedger(), PlatformProject: "the-platform"})
	var notifications []string
	c.Listen(func(e Change) { notifications = append(notifications, e.Namespace) })
	expect := func(when, namespace, project string, changed ...string) {
		t.Helper()
		tenant, ok := c.Tenant(namespace)
		if !ok || tenant.Project != project {
			t.Errorf("%s: namespace %s is of project %q (known: %t), want %q", when, namespace, tenant.Project, ok, project)
		}
		if slices.Sort(notifications); !slices.Equal(notifications, changed) {
			t.Errorf("%s: notified of %v, want %v", when, notifications, changed)
		}
		notifications = nil
	}
	c.SetProject("red", "")
	expect("without a label anywhere", "red", "red")
	c.SetProject("team", "red")
	expect("when another namespace has the label", "red", "namespace/red", "red")
	expect("when another namespace has the label", "team", "red")
	c.SetProject("team-2", "red")
	c.DropNamespace("team")
	expect("while one namespace of two has the label still", "red", "namespace/red")
	c.SetProject("team-2", "blue")
	expect("when the last label is another one", "red", "red", "red", "team-2")
	c.SetProject("team-2", "red")
	expect("when it is set again", "red", "namespace/red", "red", "team-2")
	c.DropNamespace("team-2")
	expect("when the last namespace of the label is gone", "red", "red", "red")
	c.SetProject("red", "red")
	expect("when it has the label of the namespace's name", "red", "red")
	c.SetProject("late", "red")
	expect("and another one has it too", "red", "red")
	c.SetProject("late", "red")
	expect("when nothing changes", "late", "red")
	if len(c.namespaces.labelCounts) != 1 || c.namespaces.labelCounts["red"] != 2 {
		t.Errorf("labels are counted as %v", c.namespaces.labelCounts)
	}
}

func TestStoppedListenerIsNotNotified(t *testing.T) {
	c := New(Options{Ledger: emptyLedger(), PlatformProject: "the-platform"})
	var notifications []string
	note := func(who string) func(Change) {
		return func(e Change) { notifications = append(notifications, who+" of "+e.Namespace) }
	}
	c.SetProject("team", "red")
	stop := c.Listen(note("a"))
	c.Listen(note("b"))
	c.SetProject("team", "blue")
	stop()
	c.SetProject("team", "green")
	if want := []string{"a of team", "b of team", "b of team"}; !slices.Equal(notifications, want) {
		t.Errorf("notified of %q, want %q", notifications, want)
	}
}

func TestNamespaceNameDoesNotJoinProject(t *testing.T) {
	c := New(Options{Ledger: emptyLedger(), PlatformProject: "the-platform"})
	c.SetProject("ours", "red")
	c.SetProject("red", "")
	c.SetProject("operations", "the-platform")
	c.SetProject("the-platform", "")
	for _, namespace := range []string{"red", "the-platform"} {
		tenant, _ := c.Tenant(namespace)
		if tenant.Platform || tenant.MayUse(ipam.VisibilityConsumer, namespace) {
			t.Errorf("namespace %s is taken for a part of the project: %+v", namespace, tenant)
		}
	}
	if tenant, _ := c.Tenant("operations"); !tenant.Platform {
		t.Error("the platform's own namespace is not of its project")
	}
	c.SetProject("operations", "")
	if tenant, _ := c.Tenant("the-platform"); tenant.Platform {
		t.Error("a namespace without label is the platform, by its name alone")
	}
}
