package messages

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// introduction is the start of the document.
const introduction = `# Messages

Every message that people can get from Cadastre: refusals and warnings of its webhooks,
rules of its CRDs (which the API server evaluates), refusals of its policies, and the
messages of conditions. Each says **what is wrong with which value, and what to do**.

To find a message, look for the part that stays the same: names, blocks and numbers are
examples. The answers of the API server begin with the object, which is left out here:
` + "`IPClaim.ipam.cadastre.dev \"a\" is invalid: spec.cidr: Invalid value: …`" + `. A condition that is
True stands for an object that does what it is there for, but where its reason says
otherwise; events repeat what conditions say, but for those that are listed.

| code | means |
|---|---|
| 403 Forbidden | the limit of a project is reached, or only the operator may write that |
| 409 Conflict | the block, the pool or the class is in use |
| 422 Invalid | a field cannot be as it is: correct it |
| 429 TooManyRequests | try again; most clients do so by themselves |
| 500 InternalError | the API server did not answer the operator: try again |
| 507 InsufficientStorage | no room, where class or pool say ` + "`onExhaustion: Reject`" + ` |
| warning | the object is stored, and waits or does less than it says |

This file is generated from runs of the tests with bad inputs, by ` + "`make messages`" + `; a test
fails where a message lacks something, or is missing here.
`

// section holds the heading and the text about one kind of object in the document.
type section struct{ object, title, about string }

// sections returns the sections in the order of the document.
func sections() []section {
	return []section{
		{"IPClaim", "IPClaim", ""},
		{"IPPool", "IPPool and LocalIPPool", "A LocalIPPool is answered in the same words. What a parent lacks is said as an IPClaim says it of\nits pool.\n\n"},
		{"IPClass", "IPClass", ""},
		{"IPAddressClaim", "IPAddressClaim", "Cluster API's claims. What a pool or a class lacks is said as by an IPClaim.\n\n"},
		{"IPAddress", "IPAddress", "Cluster API's addresses, where others than the operator create them.\n\n"},
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
	at := map[string]int{}
	var kept []Row
	for _, r := range ordered {
		if r.Object == "LocalIPPool" {
			r.Object = "IPPool"
		}
		key := strings.Join([]string{r.Object, r.about(), r.Answer, r.kindOfPlace(), shape(r.Message, templates)}, "\x00")
		if i, known := at[key]; known {
			kept[i].On = together(kept[i].On, r.On)
			continue
		}
		at[key] = len(kept)
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
	all := append(strings.Split(a, ", "), strings.Split(b, ", ")...)
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", ")
}

// shape returns the templates that a message meets. They are the same for two messages that
// differ only in their values. A message that meets none is of a rule, or of Kubernetes.
func shape(message string, templates []Template) string {
	var met []string
	for _, t := range templates {
		if t.Meets(message) {
			met = append(met, t.Text())
		}
	}
	if len(met) == 0 {
		return message
	}
	slices.Sort(met)
	return strings.Join(slices.Compact(met), "\x01")
}
