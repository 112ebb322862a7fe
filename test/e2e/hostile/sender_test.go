package hostile

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// sender sends mutations of valid objects to the API server, one after another.
type sender struct {
	t      *testing.T
	http   *http.Client
	host   string
	random *rand.Rand
	codes  map[int]int
	stored []string // paths of the created objects
}

// send creates an object, or changes one that was created.
func (s *sender) send(which string) {
	kinds := valid()
	plural := slices.Sorted(maps.Keys(kinds))[s.random.IntN(len(kinds))]
	object := mutated(kinds[plural][s.random.IntN(len(kinds[plural]))], s.random)
	group := v1alpha1.GroupVersion.String()
	if plural == addressClaims || plural == addresses {
		group = ipamv1.GroupVersion.String()
	}
	if _, ok := object["apiVersion"]; !ok {
		object["apiVersion"] = group
	}
	path := "/apis/" + group + "/"
	if plural != "ippools" && plural != "ipclasses" {
		path += "namespaces/default/"
	}
	method, contentType := http.MethodPost, "application/json"
	path += plural
	if len(s.stored) > 0 && s.random.IntN(4) == 0 {
		method, contentType, path = http.MethodPatch, "application/merge-patch+json", s.stored[s.random.IntN(len(s.stored))]
		object = map[string]any{"spec": object["spec"]}
	}
	body, err := json.Marshal(object)
	suite.Must(s.t, err)
	code, answer := s.do(which, method, path+"?fieldValidation="+[]string{"Strict", "Ignore"}[s.random.IntN(2)], contentType, body)
	s.codes[code]++
	if code == http.StatusCreated {
		s.remember(path, answer)
	}
	if reason := wrong(code, answer); reason != "" {
		s.t.Errorf("%s: %s: %s %s %.2000s: %d %.1500s", which, reason, method, path, body, code, answer)
	}
}

func (s *sender) do(which, method, path, contentType string, body []byte) (int, []byte) {
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.host+path, bytes.NewReader(body))
	suite.Must(s.t, err)
	req.Header.Set("Content-Type", contentType)
	response, err := s.http.Do(req)
	if err != nil {
		s.t.Errorf("%s: no answer: %v: %.2000s", which, err, body)
		return 0, nil
	}
	answer, err := io.ReadAll(response.Body)
	suite.Must(s.t, errors.Join(err, response.Body.Close()))
	return response.StatusCode, answer
}

func (s *sender) remember(path string, answer []byte) {
	created := &metav1.PartialObjectMetadata{}
	if json.Unmarshal(answer, created) == nil {
		s.stored = append(s.stored, path+"/"+created.Name)
	}
}

// field matches a field in a message, by its path or the name that metadata and types have for it;
// or the answer of the API server to an object that it cannot read at all.
var field = regexp.MustCompile(`(?i)\b(spec|metadata|kind|apiVersion|name|generateName|namespace|labels?|annotations?|finalizers?|ownerReferences|field)\b|cannot be handled as|IPAllocations are made by the operator`)

// wrong returns the fault of an answer, if there is any.
func wrong(code int, answer []byte) string {
	switch {
	case code >= 200 && code < 300:
		return ""
	case code == 0:
		return "" // already reported
	case code < 400 || code >= 500:
		return "no 4xx"
	}
	status := metav1.Status{}
	if err := json.Unmarshal(answer, &status); err != nil {
		return "no Status"
	}
	caused := status.Details != nil && slices.ContainsFunc(status.Details.Causes, func(c metav1.StatusCause) bool { return c.Field != "" })
	switch {
	case caused, code != http.StatusUnprocessableEntity && field.MatchString(status.Message):
		return ""
	case strings.Contains(status.Message, "ValidatingAdmissionPolicy") && field.MatchString(status.Message): // has messages alone
		return ""
	}
	return "names no field"
}
