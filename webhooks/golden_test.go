package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gomodules.xyz/jsonpatch/v2"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
)

// answerOf prints all of a response: its changes to the object, a line for each field, and the
// warnings; or the refusal. Random parts are masked.
func answerOf(t *testing.T, response admission.Response, req admission.Request) string {
	t.Helper()
	edited := applyAnswer(t, req, &response)
	if !response.Allowed {
		return fmt.Sprintf("%d %s: %s", response.Result.Code, response.Result.Reason, response.Result.Message)
	}
	changes, err := jsonpatch.CreatePatch(req.Object.Raw, edited)
	must(t, err)
	lines := make([]string, 0, len(changes))
	for _, c := range changes {
		value, err := json.Marshal(c.Value)
		must(t, err)
		lines = append(lines, strings.TrimSpace(c.Operation+" "+c.Path+" "+strings.TrimSuffix(string(value), "null")))
	}
	slices.Sort(lines)
	for _, warning := range response.Warnings {
		lines = append(lines, "warning: "+warning)
	}
	text := random.ReplaceAllString(strings.Join(append([]string{"allowed"}, lines...), "\n"), "${1}?")
	return times.ReplaceAllString(text, `"now"`)
}

// answer sends a request to the mutating webhook of its kind, and prints the response.
func (s *stage) answer(t *testing.T, req admission.Request) string {
	t.Helper()
	return answerOf(t, s.mutate[req.Kind.Kind].Handle(t.Context(), req), req)
}

// random matches the drawn parts of names of records, and of objects with generateName, and times
// matches the transition times of conditions.
var (
	random = regexp.MustCompile(`(\b(?:c|a|q|made|own|[\w-]+-[0-9a-f]{10})-)[a-z0-9]{8}(-[a-z0-9]{8})?\b`)
	times  = regexp.MustCompile(`"20[-0-9]{8}T[:0-9]{8}Z"`)
)

// answers holds requests. Each is answered on its own stage, and the answers are compared, with the
// records after them, with those in a file of testdata/answers. With -update that file is written.
type answers []struct {
	name, kind, object, old string
	how                     uint8
	// user is the user of the request, if how does not set one.
	user string
	// fails is the call to the API server that fails, and late the one that is not answered in
	// time.
	fails, late string
}

func (all answers) check(t *testing.T, file string, prepare func(*testing.T, *stage)) {
	t.Helper()
	file = filepath.Join("testdata", "answers", file)
	var got strings.Builder
	for _, c := range all {
		s := newStage(t)
		prepare(t, s)
		req := review(c.kind, c.object, c.old, c.how)
		if c.user != "" {
			req.UserInfo.Username = c.user
		}
		handler := s.mutate[c.kind]
		if c.how&validating != 0 {
			handler = s.validate[c.kind]
		}
		before, claimsBefore := s.blocks(t), s.networkClaims(t)
		s.fails.Store(c.fails, errors.New("the connection is cut"))
		s.fails.Store(c.late, context.DeadlineExceeded)
		answer := answerOf(t, handler.Handle(t.Context(), req), req)
		s.fails.Clear()
		claims := linesSince("claimed", claimsBefore, "deleted", s.networkClaims(t))
		fmt.Fprintf(&got, "== %s %s: %s\n%s\n%s%s\n", strings.ToLower(string(req.Operation)), c.kind, c.name, answer, claims, s.recordedSince(t, before))
	}
	if messages.Updating() {
		must(t, os.WriteFile(file, []byte(got.String()), 0o600))
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("the answers are not those of %s:\n%s", file, diff)
	}
}

// networkClaims returns the claims of Clusters, with their blocks and attempts.
func (s *stage) networkClaims(t *testing.T) []string {
	t.Helper()
	list := &v1alpha1.IPClaimList{}
	must(t, s.store.List(t.Context(), list))
	var lines []string
	for _, claim := range list.Items {
		if identity := claim.Annotations[v1alpha1.AnnotationClusterNetwork]; identity != "" {
			line := fmt.Sprintf("%s/%s %s for %s, attempt %s", claim.Namespace, claim.Name, claim.Spec.CIDR, identity, claim.Annotations[v1alpha1.AnnotationAttempt])
			lines = append(lines, line)
		}
	}
	return lines
}

// blocks returns all records, with their blocks and states, but without random parts, after those
// that are being discarded are gone.
func (s *stage) blocks(t *testing.T) []string {
	t.Helper()
	s.Allocator.Close()
	list := &v1alpha1.IPAllocationList{}
	must(t, s.store.List(t.Context(), list))
	lines := make([]string, 0, len(list.Items))
	for i := range list.Items {
		r := &list.Items[i]
		line := fmt.Sprintf("%s/%s %s %s for %s %s", r.Namespace, r.Name, r.Spec.State, r.Spec.CIDR, r.Spec.ClaimRef.Kind, r.Spec.ClaimRef.Name)
		if r.Spec.PoolRef != nil {
			line += fmt.Sprintf(" of %s %s", r.Spec.PoolRef.Kind, r.Spec.PoolRef.Name)
		}
		if r.Spec.ClassName != "" {
			line += " by class " + r.Spec.ClassName
		}
		lines = append(lines, random.ReplaceAllString(line, "${1}?"))
	}
	return lines
}

// recordedSince prints a line for each new record, and for each that is gone.
func (s *stage) recordedSince(t *testing.T, before []string) string {
	t.Helper()
	return linesSince("recorded", before, "released", s.blocks(t))
}

// linesSince prints each line that is new, and each that is gone.
func linesSince(added string, before []string, removed string, after []string) string {
	var text strings.Builder
	for _, line := range after {
		if !slices.Contains(before, line) {
			fmt.Fprintf(&text, "%s: %s\n", added, line)
		}
	}
	for _, line := range before {
		if !slices.Contains(after, line) {
			fmt.Fprintf(&text, "%s: %s\n", removed, line)
		}
	}
	return text.String()
}
