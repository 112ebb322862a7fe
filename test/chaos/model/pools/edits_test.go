package pools

// onRest is a pool that is made on the half that another gives up, or wants; rest are the claims of
// that half.
var (
	half   = Pool{Block: Half, There: true, Stays: true}
	onRest = Pool{Block: Other, Requests: 1, Stays: true}
	rest   = []Claim{claimIn(0, Other), claimIn(1, Other)}
)

// edited returns a pool that takes these blocks, one after the other.
func edited(p Pool, blocks ...uint8) Pool { p.Edits = blocks; return p }

// editScenarios are explored completely, too. A bound of the lag keeps them small.
var editScenarios = []Scenario{
	{Name: "a pool shrinks, and another is made on the rest, a crash and a relist", Replicas: 3, Crashes: 1, Relists: 1,
		Pools: []Pool{edited(stays, Half), onRest}, Claims: rest},
	{Name: "the same, claims of the whole block and of what stays", Replicas: 3,
		Pools: []Pool{edited(stays, Half), onRest}, Claims: []Claim{claimIn(0, Whole), claimIn(0, Half), claimIn(1, Other)}},
	{Name: "a pool shrinks while its whole block is recorded, a crash and a relist", Replicas: 2, Crashes: 1, Relists: 1,
		Pools: []Pool{edited(stays, Half), onRest}, Claims: []Claim{claimIn(0, Whole), claimIn(1, Other)}},
	{Name: "a pool shrinks, two replicas record its new block, a crash and a relist", Replicas: 2, Lag: 5, Twins: true, Crashes: 1, Relists: 1,
		Pools: []Pool{edited(stays, Half), onRest}, Claims: rest},
	{Name: "a pool shrinks, and a cache is behind, a relist", Replicas: 2, Lag: 5, Mistakes: 1, Relists: 1,
		Pools: []Pool{edited(stays, Half), onRest}, Claims: rest},
	{Name: "a pool shrinks and grows again, while another is made, a crash", Replicas: 2, Lag: 5, Crashes: 1,
		Pools: []Pool{edited(stays, Half, Whole), onRest}, Claims: rest},
	{Name: "a pool grows while another is made, three replicas", Replicas: 3, Lag: 5,
		Pools: []Pool{edited(half, Whole), onRest}, Claims: rest},
	{Name: "the same, a crash and a relist", Replicas: 2, Lag: 5, Crashes: 1, Relists: 1,
		Pools: []Pool{edited(half, Whole), onRest}, Claims: rest},
	{Name: "a pool moves while another is made", Replicas: 2, Lag: 5,
		Pools: []Pool{edited(half, Other), onRest}, Claims: []Claim{claimIn(0, Half), claimIn(0, Other), claimIn(1, Other)}},
	{Name: "a pool moves, and then has both halves, while another is made on the first, and a cache is behind", Replicas: 2, Lag: 5, Mistakes: 1,
		Pools: []Pool{edited(half, Other, Whole), {Block: Half, Requests: 1, Stays: true}}, Claims: []Claim{claimIn(0, Whole), claimIn(1, Half)}},
	{Name: "a pool that shrinks is deleted or forced away", Replicas: 2, Lag: 5, Force: true,
		Pools: []Pool{edited(there, Half), onRest}, Claims: rest},
	{Name: "the same, a crash", Replicas: 2, Lag: 6, Force: true, Crashes: 1,
		Pools: []Pool{edited(there, Half), onRest}, Claims: rest},
	{Name: "the same, and made again under its own name", Replicas: 2, Lag: 4, Force: true,
		Pools: []Pool{edited(again, Half), onRest}, Claims: rest},
	{Name: "the same, and a cache is behind", Replicas: 2, Lag: 3, Force: true, Mistakes: 1,
		Pools: []Pool{edited(again, Half), onRest}, Claims: rest},
	{Name: "a pool that shrinks goes, with a claim in what stays, and another is made on its CIDR", Replicas: 2, Lag: 5, Force: true, Crashes: 1,
		Pools: []Pool{edited(there, Half), {Block: Whole, Requests: 1, Stays: true}}, Claims: []Claim{claimIn(0, Half), claimIn(1, Half)}},
	{Name: "a pool that grows goes, with a claim, while another is made on the rest", Replicas: 2, Lag: 4, Force: true,
		Pools: []Pool{edited(Pool{Block: Half, There: true}, Whole), onRest}, Claims: []Claim{claimIn(0, Half), claimIn(1, Other)}},
	{Name: "a pool shrinks while a child is made in the rest, and another pool", Replicas: 2, Lag: 5,
		Pools: []Pool{edited(stays, Half), {Block: Other, Parent: 1, Requests: 1}, onRest}, Claims: []Claim{claimIn(1, Other), claimIn(2, Other)}},
	{Name: "a child pool shrinks or goes, and its parent hands the rest out", Replicas: 2, Lag: 5, Force: true,
		Pools: []Pool{stays, edited(childOf0(there), Half)}, Claims: []Claim{claimIn(1, Other), claimIn(0, Other)}},
}

// withoutEditRules are scenarios in which a rule is needed for edits.
var withoutEditRules = []withoutRule{
	{Coverage, Scenario{Name: "a pool shrinks", Replicas: 2, Pools: []Pool{edited(stays, Half), onRest}, Claims: rest}},
	{MarkFirst, Scenario{Name: "a pool shrinks", Replicas: 2, Pools: []Pool{edited(stays, Half), onRest}, Claims: rest}},
	{SeeMark, Scenario{Name: "a pool shrinks", Replicas: 2, Pools: []Pool{edited(stays, Half), onRest}, Claims: rest}},
	{Unmark, Scenario{Name: "a pool shrinks", Replicas: 2, Pools: []Pool{edited(stays, Half), onRest}, Claims: rest}},
	{GiveUpMarked, Scenario{Name: "a pool grows", Replicas: 2, Lag: 5, Relists: 1, Pools: []Pool{edited(half, Whole), onRest}, Claims: rest}},
	{NewFirst, Scenario{Name: "a pool grows", Replicas: 2, Lag: 5, Pools: []Pool{edited(half, Whole), onRest}}},
	{Replaced, Scenario{Name: "a pool shrinks and grows again", Replicas: 2, Lag: 5, Pools: []Pool{edited(stays, Half, Whole)}}},
}
