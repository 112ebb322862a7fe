package figures

// Observed are the variants of the scenario observed, the one without anything first.
var Observed = [...]string{"no metrics, no traces", "scraped each second", "scraped, every create traced"} //nolint:gochecknoglobals // a constant list
