// Package health implements the commands that examine an installation: doctor, check,
// support-bundle and version.
package health
