package dashboards

const (
	// ofPool is the name of a pool's time series.
	ofPool = "{{pool_namespace}} {{pool}}"
	// byPool takes the value of any replica: all replicas export the same.
	byPool = "max by (pool_namespace, pool) "
)

// space adds the panels of the addresses: the usage of the pools, the waiting claims and the limits
// of projects.
func (b *builder) space() {
	b.choices = holders
	b.row("Pools")
	b.pools()
	b.row("Over time")
	b.overTime()
	b.row("Blocks")
	b.kept()
	b.row("Claims")
	b.claims()
	b.row("Limits of projects")
	b.limits()
}

func (b *builder) pools() {
	stat := place{6, 4}
	b.stat("Number of pools", "none", "Pools that are shown.", stat, query{"count(" + byPool + "(cadastre_pool_capacity_addresses))", ""})
	b.stat("Pools with less than a tenth free", "none", "Of those with more than 15 addresses to hand out: for each the alert fires.", stat,
		query{"count(" + b.rule("CadastrePoolNearlyFull").Expr + ") or vector(0)", ""}).from(Step{Value: new(1.0), Color: bad})
	b.stat("Blocks", "none", "Blocks that are recorded.", stat, query{"sum(max by (pool_namespace, pool, state) (cadastre_pool_allocations))", ""})
	b.stat("Waiting claims", "none", "Claims and child pools in line for a pool; one that several pools may serve is counted for each.", stat,
		query{"sum(max by (pool_namespace, pool, reason) (cadastre_waiting)) or vector(0)", ""}).from(Step{Value: new(1.0), Color: poor})
	free := b.bars("Free addresses, least first", "The share of its addresses that a pool can still hand out, of the 20 pools with the least. Pools with 15 addresses or fewer are in the table alone.", place{8, 12},
		query{"sort(bottomk(20, " + b.one("CadastrePoolNearlyFull", "").expr + "))", ofPool},
		Step{Color: bad}, Step{Value: new(b.threshold("CadastrePoolNearlyFull")), Color: poor}, Step{Value: new(0.4), Color: good})
	b.runbook(free, "CadastrePoolNearlyFull")
	addresses := func(what string) string { return byPool + "(cadastre_pool_" + what + "_addresses)" }
	b.table("Pools", "Addresses of each pool. Withheld ones are never handed out; retained ones are kept for a claim that is gone; cooling ones were released and are not handed out again yet; unclaimed ones have no claim that names them yet.", place{16, 12},
		column{name: "Namespace", label: "pool_namespace"}, column{name: "Pool", label: "pool"},
		column{name: "Capacity", expr: addresses("capacity")}, column{name: "Withheld", expr: addresses("withheld")},
		column{name: "Allocated", expr: addresses("allocated")}, column{name: "Available", expr: addresses("available")},
		column{name: "Retained", expr: addresses("retained")}, column{name: "Cooling", expr: addresses("cooling")}, column{name: "Unclaimed", expr: addresses("unclaimed")})
}

// usable is the number of addresses that a pool can hand out at all. Panels over time show shares
// of it, because a pool of IPv6 has too many addresses to show them beside others.
const usable = byPool + "(cadastre_pool_capacity_addresses - cadastre_pool_withheld_addresses > 0)"

func (b *builder) overTime() {
	half := place{12, 8}
	share := func(addresses string) query { return query{addresses + "\n  / " + usable, ofPool} }
	b.lines("Free", "percentunit", "The share of its addresses, without those that are withheld, that a pool can hand out.", half,
		share(byPool+"(cadastre_pool_available_addresses)")).FieldConfig.Defaults.Max = new(1.0)
	b.lines("Allocated", "percentunit", "The share of its addresses, without those that are withheld, that are in blocks that are recorded.", half,
		share(byPool+"(cadastre_pool_allocated_addresses)")).FieldConfig.Defaults.Max = new(1.0)
	whole := share(b.one("CadastrePoolFullSoon", "").expr)
	forecast := b.lines("Free in four days", "percentunit", "If the pool continues to fill as in the last six hours. Below the dashed line it will be full; -100% stands for less, too.", half,
		query{"clamp(" + whole.expr + ", -1, 1)", whole.legend})
	forecast.FieldConfig.Defaults.Min, forecast.FieldConfig.Defaults.Max = new(-1.0), new(1.0)
	b.dashed(forecast, "CadastrePoolFullSoon")
	b.lines("Growth in an hour", "percentunit", "Of the ten pools whose allocated share has grown the most in the last six hours.", half,
		query{"topk(10, " + byPool + "(deriv(cadastre_pool_allocated_addresses[6h]) * 3600)\n  / " + usable + " > 0)", ofPool})
}

func (b *builder) kept() {
	half := place{12, 8}
	b.lines("Blocks by state", "short", "Blocks that are recorded. Retained ones are kept for a claim that is gone; cooling ones were released and are not handed out again yet; unclaimed ones have no claim that names them yet.", half,
		query{"sum by (state) (max by (pool_namespace, pool, state) (cadastre_pool_allocations))", "{{state}}"})
	b.lines("Blocks that are not bound", "short", "By pool and state.", half,
		query{`max by (pool_namespace, pool, state) (cadastre_pool_allocations{state!="bound"})`, ofPool + " {{state}}"})
}

func (b *builder) claims() {
	third := place{8, 8}
	b.lines("Claims by phase and reason", "short", "Of all pools.", third,
		query{"max by (kind, phase, reason) (cadastre_claims)", "{{kind}} {{phase}} {{reason}}"})
	b.lines("Waiting for a pool", "short", "Claims and child pools that wait for a block.", third,
		query{"max by (pool_namespace, pool, reason) (cadastre_waiting)", ofPool + " {{reason}}"})
	b.watched("CadastreClaimsWaiting", panelText{"Age of the oldest waiting claim", "s", "By pool and reason. The alert fires above the dashed line."}, third, ofPool+" {{reason}}")
}

func (b *builder) limits() {
	const labels = "project, class, pool_namespace, pool, unit"
	share := b.one("CadastreLimitNearlyReached", "").expr
	bars := b.bars("Use of limits, most first", "The share of its limit that each project holds, of the 20 with the largest share.", place{8, 8},
		query{"sort_desc(topk(20, " + share + "))", "{{project}} {{class}} {{pool_namespace}} {{pool}} {{unit}}"},
		Step{Color: good}, Step{Value: new(b.threshold("CadastreLimitNearlyReached")), Color: bad})
	b.runbook(bars, "CadastreLimitNearlyReached")
	b.table("Limits and their use", "The addresses or blocks of a class or a pool that each project holds, and its limit. Only if a limit is set.", place{16, 8},
		column{name: "Project", label: "project"}, column{name: "Class", label: "class"}, column{name: "Namespace", label: "pool_namespace"}, column{name: "Pool", label: "pool"}, column{name: "Unit", label: "unit"},
		column{name: "Holds", expr: "max by (" + labels + ") (cadastre_project_usage)"},
		column{name: "Limit", expr: "max by (" + labels + ") (cadastre_project_usage) * 0\n  + on (class, pool_namespace, pool, unit) group_left ()\n  max by (class, pool_namespace, pool, unit) (cadastre_project_limit)"},
		column{name: "Share", expr: share, unit: "percentunit"})
}
