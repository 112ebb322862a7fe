// Package oncall tests what a person on call needs: the metrics of real managers, the alerts
// that promtool evaluates on them, and the commands of a runbook.
package oncall
