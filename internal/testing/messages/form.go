package messages

import (
	"regexp"
	"slices"
	"strings"
)

var (
	// subject matches the things that a message can be about: a field, an object with its kind
	// and name, a name in quotes, a block, or the very object whose condition it is.
	subject = regexp.MustCompile(strings.Join([]string{
		`^(spec|metadata|status|IPAddress spec)\b`,
		`"[^"]+"`,
		`\b(pool|routing domain|class|namespace|project|user|Cluster|IPPool|LocalIPPool|IPClass|IPClaim|IPAddressClaim|IPAllocation|IPAddress) [a-z0-9][\w./-]*`,
		`\d+\.\d+\.\d+\.\d+|[0-9a-f]+::`,
		`\b([Tt]his|[Tt]he|an?) (pool|claim|class)\b`,
		`\bIPAllocations?\b`,
	}, "|"))
	// remedy matches the next step: a colon or a comma with an imperative behind it, a
	// necessary state, or the event that comes next by itself.
	remedy = regexp.MustCompile(`(?:^|[:;,] |\bor |\band |as )(?:` + imperatives + `)\b|\bmust (?:not )?(?:be|lie|consist|have)\b|did you mean "|` +
		`supported values: |\bmay not be more than|as soon as `)
	// dump matches a value of a type of Go's.
	dump = regexp.MustCompile(`&\w+\{|map\[|\b0x[0-9a-f]{6}`)
	// words matches the words that messages do without.
	words = regexp.MustCompile(`(?i)\b(whoever|whom|nobody|somebody|told|let go|in line|disown|homeless|settle)\b`)
)

const imperatives = `add|annotate|ask|change|choose|correct|create|delete|give|have|keep|label|leave|look|make|name|release|` +
	`remove|restart|run|say|send|set|swap|take|try|use|wait|write`

// informs matches the conditions of objects that fulfill their purpose, and events of type
// Normal.
var informs = regexp.MustCompile(`^(True, (Bound|Ready|Recorded|AddressAllocated)|Normal, \w+)$`)

// isOfTheRequest reports whether a message means that the operator could not answer, and
// nothing about the object.
func (r Row) isOfTheRequest() bool {
	return slices.Contains([]string{"413", "429", "500", "503"}, r.Answer[:min(3, len(r.Answer))])
}

// foreign matches messages that come from Kubernetes, word by word.
var foreign = regexp.MustCompile(`" already exists$|in body must be of type `)

// Faults returns the parts of the form that a message lacks: the wrong value, its fault and the
// remedy, in plain words.
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
		faults = append(faults, "it names no next step")
	}
	if dump.MatchString(r.Message) {
		faults = append(faults, "it has a value as Go writes it")
	}
	if word := words.FindString(r.Message); word != "" {
		faults = append(faults, `it says "`+word+`"`)
	}
	return faults
}
