// Package ipam is the vocabulary of address management, and its decisions:
// what a claim asks for, what a class and a pool allow, which pool serves it,
// and what is said when none can.
//
// It knows neither Kubernetes nor time: values go in, a value comes out. All
// types are values that may be shared freely once built; nothing here changes
// its arguments.
package ipam
