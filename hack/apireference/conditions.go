// Package apireference writes the part of docs/api.md about conditions and their reasons, from
// the comments of the API's constants. Its tests check that part, and that the rest of the page,
// which crd-ref-docs generates, describes every field as the CRDs do.
package apireference

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// API holds the conditions and reasons that the constants of api/v1alpha1 define.
type API struct {
	// Conditions are in the order of the source.
	Conditions []Condition
	// Reasons holds the meanings of reasons, by their values.
	Reasons map[string]string
	// Events are the reasons of events alone.
	Events []string
}

// Condition represents a type of condition, and the reasons that objects give it.
type Condition struct {
	Type, Meaning string
	Uses          []Use
}

// Use holds the reasons with which objects of some kinds have a condition in a status.
type Use struct {
	Kinds   string // IPPool, LocalIPPool
	Status  string // True or False
	Reasons []string
}

// ofClusterAPI returns the reasons of Cluster API's contract that are not constants here.
func ofClusterAPI() map[string]string {
	return map[string]string{
		"AllocationFailed": "the address that the claim asks for is taken, is never handed out, or is not allowed by class or pool; or `poolRef` names no kind of pool. The message names the cause.",
	}
}

// use matches a line of a condition's comment: "IPClaim, True: Bound".
var use = regexp.MustCompile(`^(\w+(?:, \w+)*), (True|False): (.+)$`)

// Read reads the constants.
func Read(root string) (*API, error) {
	files, err := filepath.Glob(filepath.Join(root, "api/v1alpha1/*.go"))
	if err != nil {
		return nil, err
	}
	api := &API{Reasons: ofClusterAPI()}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			if spec, ok := node.(*ast.ValueSpec); ok && len(spec.Values) == 1 {
				api.add(spec.Names[0].Name, spec.Values[0], spec.Doc.Text())
			}
			return true
		})
	}
	return api, nil
}

func (a *API) add(name string, value ast.Expr, comment string) {
	literal, ok := value.(*ast.BasicLit)
	if !ok {
		return
	}
	text, err := strconv.Unquote(literal.Value)
	if err != nil {
		return
	}
	switch {
	case strings.HasPrefix(name, "Reason"):
		_, meaning, _ := strings.Cut(comment, ": ")
		a.Reasons[text] = oneLine(meaning)
	case strings.HasPrefix(name, "Event"):
		a.Events = append(a.Events, text)
	case strings.HasPrefix(name, "Condition"):
		a.Conditions = append(a.Conditions, condition(name, text, comment))
	}
}

// condition reads the comment of a condition: its meaning, and its uses.
func condition(name, of, comment string) Condition {
	var prose []string
	read := Condition{Type: of}
	for line := range strings.Lines(comment) {
		line = strings.TrimSpace(line)
		if match := use.FindStringSubmatch(line); match != nil {
			read.Uses = append(read.Uses, Use{Kinds: match[1], Status: match[2], Reasons: strings.Split(match[3], ", ")})
		} else {
			prose = append(prose, line)
		}
	}
	read.Meaning = oneLine(strings.TrimPrefix(strings.Join(prose, " "), name+" "))
	return read
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// kinds returns the columns of the table of reasons.
func kinds() []string {
	return []string{"IPClaim", "IPPool, LocalIPPool", "IPClass", "IPAddressClaim"}
}

// Write writes the section of the page.
func (a *API) Write(to io.Writer) error {
	var b strings.Builder
	b.WriteString("\n## Conditions and reasons\n\n")
	b.WriteString("An `IPClaim` has one of `Pending`, `Bound` and `Exhausted`, the one that is `True`: a missing condition\nis not true. An `IPAllocation` has no conditions.\n\n")
	b.WriteString("| condition | |\n|---|---|\n")
	for _, condition := range a.Conditions {
		fmt.Fprintf(&b, "| `%s` | %s |\n", condition.Type, condition.Meaning)
	}
	fmt.Fprintf(&b, "\nWhich reasons objects have, and of which conditions:\n\n| reason | means | %s |\n|---|---|%s\n", strings.Join(kinds(), " | "), strings.Repeat("---|", len(kinds())))
	for _, reason := range slices.Sorted(maps.Keys(a.Reasons)) {
		fmt.Fprintf(&b, "| `%s` | %s |", reason, a.Reasons[reason])
		for _, kind := range kinds() {
			fmt.Fprintf(&b, " %s |", strings.Join(a.conditionsOf(reason, kind), ", "))
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(to, b.String())
	return err
}

// conditionsOf returns the conditions that have a reason on objects of a kind, with their status.
func (a *API) conditionsOf(reason, kind string) []string {
	var found []string
	for _, condition := range a.Conditions {
		for _, use := range condition.Uses {
			if use.Kinds == kind && slices.Contains(use.Reasons, reason) {
				found = append(found, "`"+condition.Type+"` "+use.Status)
			}
		}
	}
	return found
}
