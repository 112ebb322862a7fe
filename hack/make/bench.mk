# Measurements, and the documents that show them.

BENCH_COUNT ?= 5
RECORDS ?= 100000

.PHONY: bench
bench: $(assets) build capi bin/bench ## Measure the operator on a control plane of its own, into out/: about an hour; QUICK=1: 3 minutes.
	@bin/bench --out=out $(if $(QUICK),--quick) $(if $(ONLY),--only=$(ONLY))

# Write what make bench measured last into docs/benchmarks.md.
.PHONY: bench-document
bench-document: bin/bench
	@bin/bench --document=out/bench.json >out/bench.md
	go run ./hack/cmd/splice docs/benchmarks.md operator <out/bench.md
	mkdir -p docs/plots
	cd test/perf/plots
	go run . $(CURDIR)/out/bench.json $(CURDIR)/docs/plots

# Measure the free space of a pool (BENCH_COUNT runs, default 5) into docs/benchmarks.md.
.PHONY: bench-space
bench-space:
	@mkdir -p out
	go test -run '^$$' -bench . -benchtime 0.2s -count $(BENCH_COUNT) ./internal/ipam/space | tee out/bench-space.txt
	go run ./internal/ipam/space/benchtable <out/bench-space.txt >out/bench-space.md
	go run ./hack/cmd/splice docs/benchmarks.md space <out/bench-space.md

# Measure what metrics and traces cost, a round without and with them in turn, into docs/tracing.md:
# about eight minutes; QUICK=1: 2 minutes.
.PHONY: bench-observed
bench-observed: $(assets) build bin/bench
	@bin/bench --out=out/observed --only=observed $(if $(QUICK),--quick)
	go run ./hack/cmd/splice docs/tracing.md cost <out/observed/observed.md

# Measure into docs/benchmarks.md; QUICK=1: 2 minutes.
# bench-causes: what the CPU time of a create is spent on, with nothing and with 60,000 claims in use;
# about ten minutes. bench-reads: reads of 1,000 to 100,000 claims, and creates beside them; about half
# an hour. bench-cores: creates with the control plane limited to one CPU, and to two; three minutes.
.PHONY: bench-causes bench-reads bench-cores
bench-causes bench-reads bench-cores: bench-%: $(assets) build capi bin/bench
	@bin/bench --out=out/$* --only=$* $(if $(QUICK),--quick)
	go run ./hack/cmd/splice docs/benchmarks.md $* <out/$*/$*.md

# Measure the plug-in with so many allocations beside kubectl, into docs/benchmarks.md (RECORDS,
# default 100,000): about ten minutes.
.PHONY: bench-plugin
bench-plugin: $(assets)
	@mkdir -p out
	RECORDS=$(RECORDS) PLUGIN_FIGURES=$(CURDIR)/out/bench-plugin.md $(patient) go test -count=1 -v -timeout 40m ./test/perf/plugin
	go run ./hack/cmd/splice docs/benchmarks.md plugin <out/bench-plugin.md

# Measure the page of the plug-in in Chromium with 1,000, 10,000 and RECORDS (default 100,000)
# blocks, into docs/benchmarks.md: about ten minutes.
.PHONY: bench-ui
bench-ui: $(assets) browser
	@mkdir -p out
	RECORDS=$(RECORDS) BROWSER_REQUIRED=1 UI_FIGURES=$(CURDIR)/out/bench-ui.md $(patient) go test -count=1 -v -timeout 40m ./test/perf/ui
	go run ./hack/cmd/splice docs/benchmarks.md ui <out/bench-ui.md
