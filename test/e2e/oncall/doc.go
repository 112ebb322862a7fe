// Package oncall tests the tools of a person on call: the metrics of real managers, the alerts that
// promtool evaluates on them, and the commands of a runbook.
package oncall
