package messages

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
)

// Answered returns the rows of the webhooks' golden answers, from the root of the module.
func Answered(root fs.FS) ([]Row, error) {
	rows, err := eachFile(root, "webhooks/testdata/answers/*.txt", func(text []byte) ([]Row, error) { return AnswersIn(string(text)) })
	return slices.Concat(rows...), err
}

// eachFile returns the result of read for each file of a pattern.
func eachFile[T any](root fs.FS, pattern string, read func([]byte) (T, error)) ([]T, error) {
	files, err := fs.Glob(root, pattern)
	if err != nil {
		return nil, err
	}
	all := make([]T, 0, len(files))
	for _, file := range files {
		text, err := fs.ReadFile(root, file)
		if err != nil {
			return nil, err
		}
		found, err := read(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, found)
	}
	return all, nil
}

var (
	heading = regexp.MustCompile(`^== (create|update|delete) (\w+): `)
	refusal = regexp.MustCompile(`^([45]\d\d \w*): (.*)$`)
	// about is the text that the API machinery puts in front of a message: the object that it
	// is about.
	about = regexp.MustCompile(`^(\w+\.[\w.-]+ "[^"]*" is invalid|Operation cannot be fulfilled on [\w.]+ "[^"]*"|[\w.-]+ "[^"]*" is forbidden|Internal error occurred): (.*)$`)
)

// AnswersIn returns the rows of answers as they stand in a file, with a heading each, such as
// "== create IPClaim: with a name".
func AnswersIn(text string) ([]Row, error) {
	var rows []Row
	var at Row // the object, and the request that leads to the answer
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if match := heading.FindStringSubmatch(line); match != nil {
			at = Row{On: match[1], Object: match[2]}
			continue
		}
		found, err := rowsOf(at, line)
		if err != nil {
			return nil, err
		}
		rows = append(rows, found...)
	}
	return rows, nil
}

// rowsOf returns the rows of one line of an answer.
func rowsOf(at Row, line string) ([]Row, error) {
	if warning, ok := strings.CutPrefix(line, "warning: "); ok {
		at.Answer, at.Message = "warning", warning
		return []Row{at}, nil
	}
	if status, ok := strings.CutPrefix(line, "add /status "); ok {
		return statusRows(at, status)
	}
	match := refusal.FindStringSubmatch(line)
	if match == nil || strings.HasPrefix(line, "400") { // no JSON: the API server sends none such
		return nil, nil
	}
	at.Answer, at.Message = match[1], match[2]
	if prefixed := about.FindStringSubmatch(at.Message); prefixed != nil {
		at.Message = prefixed[2]
	}
	var rows []Row
	for _, message := range split(at.Message) {
		at.Message = message
		rows = append(rows, at)
	}
	return rows, nil
}

// several matches the start of another error of a list: a field that is followed by its fault.
var several = regexp.MustCompile(`, ((?:spec|metadata)[\w.\[\]/-]*: (?:Invalid|Required|Forbidden|Unsupported))`)

// split returns the errors of a list.
func split(message string) []string {
	list, ok := strings.CutPrefix(message, "[")
	if !ok {
		return []string{message}
	}
	return strings.Split(several.ReplaceAllString(strings.TrimSuffix(list, "]"), "\x00$1"), "\x00")
}

// statusRows returns the row of the condition Ready of a status that admission writes.
func statusRows(at Row, text string) ([]Row, error) {
	var status struct {
		Conditions []struct{ Type, Status, Reason, Message string }
	}
	if err := json.Unmarshal([]byte(text), &status); err != nil {
		return nil, err
	}
	for _, c := range status.Conditions {
		if c.Type == "Ready" {
			at.On, at.Answer, at.Message = "condition Ready", c.Status+", "+c.Reason, c.Message
			return []Row{at}, nil
		}
	}
	return nil, nil
}
