package messages

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
)

// introduction is the start of the document.
const introduction = `# Messages

This page lists all messages of Cadastre for users: refusals and warnings of its webhooks,
rules of its CRDs (which the API server evaluates), refusals of its policies, and the
messages of conditions. Each states **which value is wrong, and how to correct it**.

To find a message, search for its constant part: names, blocks and numbers are
examples. The answers of the API server begin with the object, which is left out here:
` + "`IPClaim.ipam.cadastre.dev \"a\" is invalid: spec.cidr: Invalid value: …`" + `. A condition that is
True belongs to an object that is ready for use, unless its reason states
otherwise. Events repeat the messages of conditions, except for the events that are listed.

| code | means |
|---|---|
| 403 Forbidden | the limit of a project is reached, a right is missing, or only the operator can write the field |
| 409 Conflict | the block, the pool or the class is in use |
| 422 Invalid | a field has an invalid value: correct it |
| 429 TooManyRequests | try again; most clients retry automatically |
| 500 InternalError | the API server did not answer the operator: try again |
| 507 InsufficientStorage | no room, and class or pool have ` + "`onExhaustion: Reject`" + ` |
| warning | the object is stored, and waits or does less than it requests |

Tests with invalid inputs generate this file, by ` + "`make messages`" + `; a test
fails if a message is incomplete, or is missing here.
`

// section holds the heading and the text about one kind of object in the document.
type section struct{ object, title, about string }

// sections returns the sections in the order of the document.
func sections() []section {
	return []section{
		{"IPClaim", "IPClaim", ""},
		{"IPPool", "IPPool and LocalIPPool", "A LocalIPPool gets the same messages. A parent has the messages of an IPClaim about its pool.\n\n"},
		{"IPClass", "IPClass", ""},
		{"IPAddressClaim", "IPAddressClaim", "Claims of Cluster API. A pool or a class has the messages of an IPClaim.\n\n"},
		{"IPAddress", "IPAddress", "Addresses of Cluster API that users other than the operator create.\n\n"},
		{"Cluster", "Cluster", "Clusters of Cluster API whose networks are filled in. A refusal that begins with an annotation ends with the message of the IPClaim.\n\n"},
		{"IPAllocation", "IPAllocation", "Only the operator writes these.\n\n"},
	}
}

// Document returns the text of docs/messages.md: one row for each message of an object and a
// field or a reason, with one example.
func Document(rows []Row, templates []Template) string {
	var text strings.Builder
	text.WriteString(introduction)
	kept := distinct(rows, templates)
	for _, section := range sections() {
		fmt.Fprintf(&text, "\n## %s\n\n%s| field or reason | where | message |\n|---|---|---|\n", section.title, section.about)
		for _, r := range kept {
			if r.Object == section.object {
				fmt.Fprintf(&text, "| %s | %s | %s |\n", r.about(), r.where(), cell(r.Message))
			}
		}
	}
	return text.String()
}

var (
	begins = regexp.MustCompile(`^((?:IPAddress )?(?:spec|metadata|status)[\w.\[\]/-]*)`)
	index  = regexp.MustCompile(`\[\d+\]`)
)

// about returns the field that a message is about, or the reason of the condition.
func (r Row) about() string {
	if _, reason, is := strings.Cut(r.Answer, ", "); is {
		return reason
	}
	if name := begins.FindString(r.Message); name != "" {
		return "`" + index.ReplaceAllString(name, "[]") + "`"
	}
	return "–"
}

// where returns the request or the condition in which the message appears, and its status.
func (r Row) where() string {
	status, _, _ := strings.Cut(r.Answer, ", ")
	return r.On + ": " + status
}

// cell returns a text as a table of Markdown has it.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`, "](", `]\(`).Replace(text)
}

// distinct returns the rows without those that repeat another one with other values.
func distinct(rows []Row, templates []Template) []Row {
	ordered := slices.Clone(rows)
	slices.SortStableFunc(ordered, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.about(), b.about()), cmp.Compare(a.Answer, b.Answer), cmp.Compare(a.Message, b.Message), cmp.Compare(a.On, b.On))
	})
	indexes := map[string]int{}
	var kept []Row
	for _, r := range ordered {
		if r.Object == "LocalIPPool" {
			r.Object = "IPPool"
		}
		key := strings.Join([]string{r.Object, r.about(), r.Answer, r.kindOfPlace(), shape(r.Message, templates)}, "\x00")
		if i, ok := indexes[key]; ok {
			kept[i].On = together(kept[i].On, r.On)
			continue
		}
		indexes[key] = len(kept)
		kept = append(kept, r)
	}
	return kept
}

// kindOfPlace returns "request" or "condition", for the place in which the message appears.
func (r Row) kindOfPlace() string {
	if strings.HasPrefix(r.On, "condition") {
		return "condition"
	}
	return "request"
}

// together returns the causes of two messages that differ only in their values, as one list.
func together(a, b string) string {
	all := sets.New(strings.Split(a, ", ")...).Insert(strings.Split(b, ", ")...)
	return strings.Join(sets.List(all), ", ")
}

// shape returns the templates that a message meets. They are the same for two messages that
// differ only in their values. A message that meets none is of a rule, or of Kubernetes.
func shape(message string, templates []Template) string {
	met := sets.New[string]()
	for _, t := range templates {
		if t.Meets(message) {
			met.Insert(t.Text())
		}
	}
	if len(met) == 0 {
		return message
	}
	return strings.Join(sets.List(met), "\x01")
}
