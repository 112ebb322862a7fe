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
	pos := afterSpace(text, 0)
	if charAt(text, pos) != '{' {
		return errNoObject
	}
	if pos = afterSpace(text, pos+1); charAt(text, pos) == '}' {
		return nil
	}
	for charAt(text, pos) == '"' {
		name := afterString(text, pos)
		colon := afterSpace(text, name)
		if charAt(text, colon) != ':' {
			return errNoObject
		}
		value := afterSpace(text, colon+1)
		end := afterValue(text, value)
		if end > len(text) {
			return errNoObject
		}
		f(text[pos+1:name-1], text[value:end])
		switch pos = afterSpace(text, end); charAt(text, pos) {
		case ',':
			pos = afterSpace(text, pos+1)
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
		if extended := appendValue(to, string(name), value); extended != nil {
			to = extended
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
	direct, total int
	// longest is the length of the longest string, name or number.
	longest int
}

func count(text []byte) counts {
	c, depth := counts{}, 0
	add := func() {
		c.total++
		if depth == 1 {
			c.direct++
		}
	}
	for pos := 0; pos < len(text); pos++ {
		begin := pos
		switch text[pos] {
		case '"':
			pos = afterString(text, pos) - 1
			c.longest = max(c.longest, pos-begin-1)
		case ',':
			add()
		case '{', '[':
			depth++
			if next := charAt(text, afterSpace(text, pos+1)); next != '}' && next != ']' {
				add()
			}
		case '}', ']':
			depth--
		case '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			pos = endOrInvalid(text, pos, afterValue(text, pos)) - 1
			c.longest = max(c.longest, pos-begin+1)
		}
	}
	return c
}

// afterValue returns the position after the JSON value that begins at a position. It is beyond the
// end of the text if the value has no end.
func afterValue(text []byte, pos int) int {
	begin, depth := pos, 0
	for ; pos < len(text); pos++ {
		switch text[pos] {
		case '"':
			if pos = afterString(text, pos) - 1; depth == 0 {
				return pos + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return pos + 1
			}
			if depth < 0 {
				return endOrInvalid(text, begin, pos)
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return endOrInvalid(text, begin, pos)
			}
		}
	}
	return len(text) + 1
}

// endOrInvalid returns the end of a number or a word, which has at least one character.
func endOrInvalid(text []byte, begin, end int) int {
	if begin == end {
		return len(text) + 1
	}
	return end
}

// afterString returns the position after the string that begins at a position. It is beyond the end
// of the text if the string has no end.
func afterString(text []byte, pos int) int {
	for pos++; pos < len(text); pos++ {
		quote := bytes.IndexByte(text[pos:], '"')
		if quote < 0 {
			break
		}
		pos += quote
		escapes := 0
		for text[pos-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return pos + 1
		}
	}
	return len(text) + 1
}

func afterSpace(text []byte, pos int) int {
	for pos < len(text) && (text[pos] == ' ' || text[pos] == '\n' || text[pos] == '\t' || text[pos] == '\r') {
		pos++
	}
	return pos
}

// charAt returns the character at a position; 0 beyond the end.
func charAt(text []byte, pos int) byte {
	if pos >= len(text) {
		return 0
	}
	return text[pos]
}
