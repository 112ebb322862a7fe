// Package adapt is the border between the API's strings and the values that
// everything below works with: each of its functions reads one object, once,
// and answers with a value that can be trusted or with a field.ErrorList that
// names field, value and remedy.
//
// The functions are pure and may be called concurrently.
package convert
