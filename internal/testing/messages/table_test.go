package messages

import (
	"errors"
	"os"
	"slices"
	"testing"
)

// root is the root of the module.
var root = os.DirFS("../../..")

// collected returns the rows of all sources.
func collectRows(t *testing.T) []Row {
	t.Helper()
	answered, one := Answered(root)
	noted, two := Noted(root)
	policies, three := Policies(root)
	if err := errors.Join(one, two, three); err != nil {
		t.Fatal(err)
	}
	return slices.Concat(answered, noted, ruleRows(t), policies)
}

// TestTableHasEveryMessage expects the messages of the runs in docs/messages.md.
func TestTableHasEveryMessage(t *testing.T) {
	templates, err := Templates(root)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, "../../../docs/messages.md", Document(collectRows(t), templates))
}

// TestMessagesStateProblemAndRemedy checks the form of each.
func TestMessagesStateProblemAndRemedy(t *testing.T) {
	for _, row := range collectRows(t) {
		for _, fault := range row.Faults() {
			t.Errorf("%s, on %s, %s: %s:\n%s", row.Object, row.On, row.Answer, fault, row.Message)
		}
	}
}

// internalTexts holds texts in the code that no user of the API gets.
var internalTexts = map[string]string{
	" is not an IPAllocation":                            "of a watch: in the log",
	"set it or spec.routingDomain, to locate the block":  "of an IPAllocation that cannot be read: in the log",
	"set it, to locate the block":                        "of an IPAllocation that cannot be read: in the log",
	"set it to the namespace of the LocalIPPool":         "of an IPAllocation that cannot be read: in the log",
	"the address is not in the cache yet":                "reconciled again",
	"the allocation is not in the view yet":              "reconciled again",
	"too many unclaimed allocations":                     "UnclaimedError names the namespace",
	"the pool is in use":                                 "the answer has other words",
	"another allocation was recorded first":              "another block is tried",
	"it is the turn of another holder":                   "answered as a pool without room",
	" is not known":                                      "answered as a pool that is closed",
	"the pool's own record is missing or being released": "answered as a pool that is closed",
	"the object is null":                                 "the API server sends no such object",
	"more error":                                         "after the first errors of an object",
	"the text is not a JSON object":                      "the API server sends no such text",
	"routing domain ":                                    "a part of the name of a space",
}

// TestEveryMessageInCodeIsInTable fails for a new message without a bad input that leads to
// it.
func TestEveryMessageInCodeIsInTable(t *testing.T) {
	templates, err := Templates(root)
	if err != nil {
		t.Fatal(err)
	}
	rows := collectRows(t)
	used := map[string]bool{}
	for _, template := range templates {
		text := template.Text()
		if internalTexts[text] != "" {
			used[text] = true
			continue
		}
		if !slices.ContainsFunc(rows, func(r Row) bool { return template.Meets(r.Message) }) {
			t.Errorf("no row has the message %s", template)
		}
	}
	for text := range internalTexts {
		if !used[text] {
			t.Errorf("the code has no text %q any more", text)
		}
	}
}
