package messages

import (
	"regexp"
	"slices"
	"strings"
)

var (
	// subject is what a message can be about: a field, an object with its kind and name, a
	// name in quotes, a block, or the very object whose condition it is.
	subject = regexp.MustCompile(strings.Join([]string{
		`^(spec|metadata|status|IPAddress spec)\b`,
		`"[^"]+"`,
		`\b(pool|routing domain|class|namespace|project|user|Cluster|IPPool|LocalIPPool|IPClass|IPClaim|IPAddressClaim|IPAllocation|IPAddress) [a-z0-9][\w./-]*`,
		`\d+\.\d+\.\d+\.\d+|[0-9a-f]+::`,
		`\b([Tt]his|[Tt]he|an?) (pool|claim|class)\b`,
		`\bIPAllocations?\b`,
	}, "|"))
	// remedy is what to do: a colon or a comma with an imperative behind it, what must be, or
	// what comes next by itself.
	remedy = regexp.MustCompile(`(?:^|[:;,] |\bor |\band |as )(?:` + imperatives + `)\b|\bmust (?:not )?(?:be|lie|consist|have)\b|did you mean "|` +
		`supported values: |\bmay not be more than|as soon as `)
	// dump is a value of a type of Go's.
	dump = regexp.MustCompile(`&\w+\{|map\[|\b0x[0-9a-f]{6}`)
	// words are those that messages do without.
	words = regexp.MustCompile(`(?i)\b(whoever|whom|nobody|somebody|told|let go|in line|disown|homeless|settle)\b`)
)

const imperatives = `add|annotate|ask|change|choose|correct|create|delete|give|have|keep|label|leave|look|make|name|release|` +
	`remove|restart|run|say|send|set|swap|take|try|use|wait|write`

// informs are conditions of objects that do what they are there for, and events of type
// Normal.
var informs = regexp.MustCompile(`^(True, (Bound|Ready|Recorded|AddressAllocated)|Normal, \w+)$`)

// isOfTheRequest reports whether a message says that the operator could not answer, and
// nothing about the object.
func (r Row) isOfTheRequest() bool {
	return slices.Contains([]string{"413", "429", "500", "503"}, r.Answer[:min(3, len(r.Answer))])
}

// foreign are messages that are of Kubernetes, word by word.
var foreign = regexp.MustCompile(`" already exists$|in body must be of type `)

// Faults are what a message lacks of the form: what is wrong with which value, and
// what to do, in plain words.
func (r Row) Faults() []string {
	if foreign.MatchString(r.Message) {
		return nil
	}
	var faults []string
	if !subject.MatchString(r.Message) && !r.isOfTheRequest() {
		faults = append(faults, "it names no field and no object")
	}
	if !strings.Contains(r.Message, r.Value) {
		faults = append(faults, "it lacks the value "+r.Value)
	}
	if !remedy.MatchString(r.Message) && !informs.MatchString(r.Answer) {
		faults = append(faults, "it does not say what to do")
	}
	if dump.MatchString(r.Message) {
		faults = append(faults, "it has a value as Go writes it")
	}
	if word := words.FindString(r.Message); word != "" {
		faults = append(faults, `it says "`+word+`"`)
	}
	return faults
}
