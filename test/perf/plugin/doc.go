// Package plugin measures the commands of the kubectl plug-in that read the whole register
// beside kubectl itself, which lists the same objects.
package plugin
