// Package edit holds the commands that change objects: create, claim, release, pause, resume and
// default-class.
package edit
