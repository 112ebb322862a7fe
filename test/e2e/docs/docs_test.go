package docs

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/framework/pages"
)

const root = "../../.."

var update = flag.Bool("update", false, "write the output of the commands into the documents")

// world holds a cluster, and a shell for its administrator.
type world struct {
	*suite.World
	shell *pages.Shell
}

func TestDocs(t *testing.T) {
	all, err := pages.All(root)
	suite.Must(t, err)
	history := filepath.Join(t.TempDir(), "history.jsonl")
	w := &world{World: suite.Start(t, cluster.Options{
		Managers: 1, ControllerManager: true, ClusterAPICRDs: true, ManagerArgs: []string{"--history-file=" + history},
	})}
	w.shell, err = pages.NewShell(t.Context(), root, t.TempDir(), w.Kubeconfig())
	suite.Must(t, err)
	before := w.objects()
	ran, left := 0, 0
	for _, page := range all {
		counts := count(page)
		left += counts.left
		if counts.run == 0 {
			continue
		}
		ran += counts.run
		t.Run(page.Path, func(t *testing.T) {
			pageWorld := &world{World: w.For(t)}
			pageWorld.shell, err = w.shell.In(filepath.Join(t.TempDir(), "page"), root)
			suite.Must(t, err)
			testdata, err := filepath.Abs("testdata")
			suite.Must(t, err)
			suite.Must(t, os.Symlink(testdata, filepath.Join(pageWorld.shell.Dir, "testdata")))
			suite.Must(t, os.Symlink(history, filepath.Join(pageWorld.shell.Dir, filepath.Base(history))))
			(&reader{world: pageWorld, page: page, texts: map[*pages.Block]string{}}).read()
			pageWorld.reset(before)
		})
	}
	t.Logf("%d blocks of documents run; %d are marked as not run:", ran, left)
	for _, page := range all {
		if page.RunBy != "" {
			t.Logf("%s: run by %s", page.Path, page.RunBy)
		}
		for _, block := range page.Blocks {
			if block.Marked {
				t.Logf("%s:%d: %s", page.Path, block.Line, block.NotRun)
			}
		}
	}
}

// counts holds the number of blocks of a page that run here, and that of the marked ones.
type counts struct{ run, left int }

func count(page *pages.Page) counts {
	var n counts
	for _, block := range page.Blocks {
		switch {
		case block.Marked:
			n.left++
		case page.RunBy == "" && pages.Runs(block.Language) && !block.Hidden:
			n.run++
		}
	}
	return n
}

// reader reads a page and runs its blocks.
type reader struct {
	*world
	page *pages.Page
	// texts holds the new texts of blocks.
	texts map[*pages.Block]string
}

func (r *reader) read() {
	for _, block := range r.page.Blocks {
		if block.Marked || !pages.Runs(block.Language) {
			continue
		}
		switch block.Language {
		case "sh":
			r.script(block)
		case "yaml":
			r.objects(block)
		case "console":
			r.console(block)
		default:
			r.Errorf("%s:%d: nothing runs %s: mark it as not run, with the reason", r.page.Path, block.Line, block.Language)
		}
		if r.Failed() {
			return // the later blocks build on it
		}
	}
	if *update && len(r.texts) > 0 {
		suite.Must(r, os.WriteFile(filepath.Join(root, r.page.Path), []byte(r.page.Replace(r.texts)), 0o644))
	}
}

// run runs a script, and fails if it cannot be run.
func (r *reader) run(script string) (string, int) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), 2*r.Patience)
	defer cancel()
	out, code, err := r.shell.Run(ctx, script)
	if err != nil {
		r.Fatalf("%s: %s: %v\n%s", r.page.Path, script, err, out)
	}
	return out, code
}

func (r *reader) script(block *pages.Block) {
	if out, code := r.run(block.Text); code != 0 {
		r.Errorf("%s:%d: exit code %d of\n%s\n%s", r.page.Path, block.Line, code, block.Text, out)
	}
}

// objects applies the objects of a block. One that has a name of a file is a file, which commands
// apply; it is checked as strictly by a dry run, unless it needs objects that do not exist yet.
func (r *reader) objects(block *pages.Block) {
	if name := fileName(block.Text); name != "" {
		path := filepath.Join(r.shell.Dir, name)
		suite.Must(r, os.MkdirAll(filepath.Dir(path), 0o755))
		suite.Must(r, os.WriteFile(path, []byte(block.Text), 0o644))
		if !r.isUsed(name, block) {
			r.Errorf("%s:%d: no later command of the page names the file %s", r.page.Path, block.Line, name)
		}
		return
	}
	suite.Must(r, os.WriteFile(filepath.Join(r.shell.Dir, "objects.yaml"), []byte(block.Text), 0o644))
	if out, code := r.run("kubectl apply --server-side --validate=strict -f objects.yaml"); code != 0 {
		r.Errorf("%s:%d: applying the block: %s", r.page.Path, block.Line, out)
	}
}

// fileName returns the name that the first line of a block gives it.
func fileName(text string) string {
	first, _, _ := strings.Cut(text, "\n")
	name, ok := strings.CutPrefix(first, "# ")
	if !ok || strings.Contains(name, " ") || filepath.Ext(name) == "" {
		return ""
	}
	return name
}

// isUsed reports whether a later block has a command that names a file.
func (r *reader) isUsed(name string, block *pages.Block) bool {
	for _, other := range r.page.Blocks {
		if other.Line > block.Line && !other.Marked && other.Language != "yaml" && strings.Contains(other.Text, name) {
			return true
		}
	}
	return false
}

// console runs the commands of a block and compares their output. A command that only reads is run
// until its output equals that of the page: the operator writes some of it a moment later.
func (r *reader) console(block *pages.Block) {
	var shown strings.Builder
	for _, step := range pages.Steps(block.Text) {
		if step.Typed == "" {
			r.Errorf("%s:%d: the block does not begin with a command", r.page.Path, block.Line)
			return
		}
		shown.WriteString(step.Typed)
		shown.WriteString(r.step(block, step))
	}
	if text := shown.String(); text != block.Text {
		r.texts[block] = text
	}
}

// step runs one command, and returns the output that the page is to show.
func (r *reader) step(block *pages.Block, step pages.Step) string {
	out, code := r.run(step.Command)
	if reads(step.Command) && !pages.Fits(step.Output, out) {
		same := 0 // how often it has printed the same: a page that is rewritten shows the stable output
		r.patiently(func() bool {
			before := out
			out, code = r.run(step.Command)
			if same++; pages.Normal(before) != pages.Normal(out) {
				same = 0
			}
			return pages.Fits(step.Output, out) || *update && same >= 5
		})
	}
	fits := pages.Fits(step.Output, out)
	if code != 0 && !refused(out) {
		r.Errorf("%s:%d: exit code %d of\n%s\n%s", r.page.Path, block.Line, code, step.Command, out)
	}
	switch {
	case fits:
		return step.Output
	case *update:
		if strings.Contains("\n"+step.Output, "\n...\n") {
			r.Logf("%s:%d: shows only a part of this output, edit it by hand:\n%s%s", r.page.Path, block.Line, step.Command, out)
			return step.Output
		}
		return out
	}
	r.Errorf("%s:%d: %sprints\n%s\nand the page shows\n%s\nrewrite it with go test ./test/e2e/docs -update", r.page.Path, block.Line, step.Command, out, step.Output)
	return step.Output
}

// refused reports whether a command ended with an error that the page can show.
func refused(out string) bool {
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "Error from server") || strings.HasPrefix(line, "The ") || strings.HasPrefix(line, "error: ") {
			return true
		}
	}
	return false
}

// reads reports whether a command changes nothing.
func reads(command string) bool {
	words := strings.Fields(command)
	for len(words) > 1 && strings.HasPrefix(words[1], "-") {
		words = append(words[:1:1], words[2:]...)
	}
	if len(words) < 3 || words[0] != "kubectl" {
		return false
	}
	verb := words[1]
	if verb == "ipam" {
		verb += " " + words[2]
	}
	switch verb {
	case "get", "describe", "ipam pools", "ipam tree", "ipam map", "ipam free", "ipam who", "ipam explain", "ipam check", "ipam doctor":
		return true
	}
	return false
}

// kinds has the kinds that pages create, as KIND.VERSION.GROUP, in the order of deletion: the holder of
// a block goes before its pool.
var kinds = []string{
	"IPClaim.v1alpha1.ipam.cadastre.dev", "IPAddressClaim.v1beta2.ipam.cluster.x-k8s.io", "IPAddress.v1beta2.ipam.cluster.x-k8s.io",
	"Machine.v1beta2.cluster.x-k8s.io", "Cluster.v1beta2.cluster.x-k8s.io",
	"LocalIPPool.v1alpha1.ipam.cadastre.dev", "IPPool.v1alpha1.ipam.cadastre.dev", "IPClass.v1alpha1.ipam.cadastre.dev",
	"ResourceQuota.v1.", "ConfigMap.v1.", "ServiceAccount.v1.",
	"RoleBinding.v1.rbac.authorization.k8s.io", "Role.v1.rbac.authorization.k8s.io",
	"ClusterRoleBinding.v1.rbac.authorization.k8s.io", "ClusterRole.v1.rbac.authorization.k8s.io",
	"ValidatingAdmissionPolicyBinding.v1.admissionregistration.k8s.io", "ValidatingAdmissionPolicy.v1.admissionregistration.k8s.io",
	"MutatingAdmissionPolicyBinding.v1.admissionregistration.k8s.io", "MutatingAdmissionPolicy.v1.admissionregistration.k8s.io",
	"Namespace.v1.", "CustomResourceDefinition.v1.apiextensions.k8s.io",
}

// listed returns all objects of a kind.
func (w *world) listed(kind string) []metav1.PartialObjectMetadata {
	w.Helper()
	gvk, _ := schema.ParseKindArg(kind)
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(*gvk)
	err := w.List(w.Context(), list)
	if meta.IsNoMatchError(err) {
		return nil
	}
	suite.Must(w, err)
	for i := range list.Items {
		list.Items[i].SetGroupVersionKind(*gvk)
	}
	return list.Items
}

// objects returns the UIDs of all objects of these kinds.
func (w *world) objects() map[types.UID]bool {
	w.Helper()
	found := map[types.UID]bool{}
	for _, kind := range kinds {
		for _, object := range w.listed(kind) {
			found[object.GetUID()] = true
		}
	}
	return found
}

// patiently asks until the answer is yes, or patience is at its end.
func (w *world) patiently(yes func() bool) bool {
	return wait.PollUntilContextTimeout(w.Context(), 250*time.Millisecond, w.Patience, true,
		func(context.Context) (bool, error) { return yes(), nil }) == nil
}

// reset deletes the objects that a page has created, so that the next one begins without them.
func (w *world) reset(before map[types.UID]bool) {
	w.Helper()
	var left []string
	if !w.patiently(func() bool {
		left = append(w.delete(before), w.release()...)
		return len(left) == 0
	}) {
		w.Errorf("the page leaves objects that cannot be deleted:\n%s", strings.Join(left, "\n"))
	}
}

// delete deletes the new objects, and returns those that still exist. A pool in use is refused, and
// deleted in a later round.
func (w *world) delete(before map[types.UID]bool) []string {
	w.Helper()
	var left []string
	for _, kind := range kinds {
		for _, object := range w.listed(kind) {
			byKubernetes := object.Name == "kube-root-ca.crt" || object.Kind == "ServiceAccount" && object.Name == "default"
			if before[object.UID] || byKubernetes {
				continue
			}
			why := ""
			if err := w.Delete(w.Context(), &object); err != nil && !apierrors.IsNotFound(err) {
				why = ": " + err.Error()
			}
			left = append(left, fmt.Sprintf("%s %s/%s%s", object.Kind, object.Namespace, object.Name, why))
		}
	}
	return left
}

// release releases the blocks that are retained, and returns the held ones.
func (w *world) release() []string {
	w.Helper()
	all := &v1alpha1.IPAllocationList{}
	suite.Must(w, w.List(w.Context(), all))
	var held []string
	for _, record := range all.Items {
		held = append(held, fmt.Sprintf("IPAllocation %s (%s)", client.ObjectKeyFromObject(&record), record.Spec.State))
		if record.Spec.State == v1alpha1.AllocationRetained {
			w.Deleted(&record)
		}
	}
	return held
}
