package webhooks

import (
	"bytes"
	"errors"
)

// Objects are measured and cut as text, before any part of them is decoded: a decoded object takes
// many times the memory and the time. The API server has encoded the text, so that each name occurs
// once, and without escapes that it does not need.

var errNoObject = errors.New("the text is not a JSON object")

// eachMember calls f with the name and the value of each member of a JSON object, in order.
func eachMember(text []byte, f func(name, value []byte)) error {
	at := afterSpace(text, 0)
	if charAt(text, at) != '{' {
		return errNoObject
	}
	if at = afterSpace(text, at+1); charAt(text, at) == '}' {
		return nil
	}
	for charAt(text, at) == '"' {
		name := afterString(text, at)
		colon := afterSpace(text, name)
		if charAt(text, colon) != ':' {
			return errNoObject
		}
		value := afterSpace(text, colon+1)
		end := afterValue(text, value)
		if end > len(text) {
			return errNoObject
		}
		f(text[at+1:name-1], text[value:end])
		switch at = afterSpace(text, end); charAt(text, at) {
		case ',':
			at = afterSpace(text, at+1)
		case '}':
			return nil
		default:
			return errNoObject
		}
	}
	return errNoObject
}

// appendObject appends a JSON object to a text, with the value of each member as appendValue appends
// it; a member for which that returns nil is left out.
func appendObject(to, object []byte, appendValue func(to []byte, name string, value []byte) []byte) ([]byte, error) {
	to = append(to, '{')
	begin := len(to)
	err := eachMember(object, func(name, value []byte) {
		end := len(to)
		if end > begin {
			to = append(to, ',')
		}
		to = append(append(append(to, '"'), name...), '"', ':')
		if with := appendValue(to, string(name), value); with != nil {
			to = with
		} else {
			to = to[:end]
		}
	})
	return append(to, '}'), err
}

// counts holds the numbers of elements in a JSON text.
type counts struct {
	// direct counts the members of the outermost object, or the items of the outermost list; all
	// also counts those within them.
	direct, all int
	// longest is the length of the longest string, name or number.
	longest int
}

func count(text []byte) counts {
	c, depth := counts{}, 0
	add := func() {
		c.all++
		if depth == 1 {
			c.direct++
		}
	}
	for at := 0; at < len(text); at++ {
		begin := at
		switch text[at] {
		case '"':
			at = afterString(text, at) - 1
			c.longest = max(c.longest, at-begin-1)
		case ',':
			add()
		case '{', '[':
			depth++
			if next := charAt(text, afterSpace(text, at+1)); next != '}' && next != ']' {
				add()
			}
		case '}', ']':
			depth--
		case '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			at = ended(text, at, afterValue(text, at)) - 1
			c.longest = max(c.longest, at-begin+1)
		}
	}
	return c
}

// afterValue returns the position after the JSON value that begins at a position. It is beyond the
// end of the text if the value has no end.
func afterValue(text []byte, at int) int {
	begin, depth := at, 0
	for ; at < len(text); at++ {
		switch text[at] {
		case '"':
			if at = afterString(text, at) - 1; depth == 0 {
				return at + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return at + 1
			}
			if depth < 0 {
				return ended(text, begin, at)
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return ended(text, begin, at)
			}
		}
	}
	return len(text) + 1
}

// ended returns the end of a number or a word, which has at least one character.
func ended(text []byte, begin, end int) int {
	if begin == end {
		return len(text) + 1
	}
	return end
}

// afterString returns the position after the string that begins at a position. It is beyond the end
// of the text if the string has no end.
func afterString(text []byte, at int) int {
	for at++; at < len(text); at++ {
		quote := bytes.IndexByte(text[at:], '"')
		if quote < 0 {
			break
		}
		at += quote
		escapes := 0
		for text[at-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return at + 1
		}
	}
	return len(text) + 1
}

func afterSpace(text []byte, at int) int {
	for at < len(text) && (text[at] == ' ' || text[at] == '\n' || text[at] == '\t' || text[at] == '\r') {
		at++
	}
	return at
}

// charAt returns the character at a position; 0 beyond the end.
func charAt(text []byte, at int) byte {
	if at >= len(text) {
		return 0
	}
	return text[at]
}
