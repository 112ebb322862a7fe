# Tests: see test/README.md.

# It includes the builds of other programs from an empty cache.
TEST_TIMEOUT ?= 25m
# How many packages are tested at a time: suites wait more than they work.
SIDE_BY_SIDE ?= 4

# The packages of `make test-others`: they need other programs than a control plane, or several, or
# measure, or guard none of the main promises.
others := /(envtest|hack/.*|internal/testing/cluster|web|test/(framework|perf)/.*|test/(lint/modules|netbox-provisioner)|test/chaos/hubs|test/e2e/(clusterctl|conformance|docs|hostile|hub|incluster|install|migrate|oncall|plugin|providers|provisioner|tracing|ui|uibrowser|uninstall))$$
# The longest suites begin first.
longest := /test/(e2e/(contract|integration|lifecycle|restore|security|tenants)|chaos/(replicas|torture))$$
# The packages that `make test-others` tests again, with the race detector, which needs a C compiler.
raced := $(patsubst %,./%/...,internal/ledger internal/allocator cmd/kubectl-ipam/app/live)
race := $(if $(shell command -v $${CC:-gcc}),-race)
# Control planes take more memory, and less CPU time.
patient := CONTROL_PLANE_GOGC=400

# tested lists those of the packages $(2) that have tests, by {{.$(1)}}.
tested = go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.$(1)}}{{end}}' $(2)

.PHONY: test
test: $(assets) build bin/test-manager ## Run vet, the unit tests, and the suites that guard the main promises: about ten minutes.
	@begin=$$SECONDS
	go vet ./...
	packages=$$($(call tested,ImportPath,./...) | grep -vE '$(others)')
	$(patient) go test -short -count=1 -p $(SIDE_BY_SIDE) -timeout $(TEST_TIMEOUT) \
	  $$(grep -E '$(longest)' <<<"$$packages") $$(grep -vE '$(longest)' <<<"$$packages")
	echo "test: passed in $$((SECONDS - begin)) s"

# Run the other tests, which need Cluster API's manager, Helm, cert-manager, Prometheus, other
# providers, Chromium or Node; the race detector; and the contract beside Cluster API's manager.
.PHONY: test-others
test-others: $(assets) build bin/test-manager programs
	@begin=$$SECONDS
	go test -short $(race) -timeout $(TEST_TIMEOUT) $(raced)
	$(patient) go test -short -count=1 -p $(SIDE_BY_SIDE) -timeout $(TEST_TIMEOUT) $$($(call tested,ImportPath,./...) | grep -E '$(others)')
	$(patient) go test -count=1 -timeout $(TEST_TIMEOUT) ./test/e2e/contract
	for module in $(modules); do
	  (cd $$module; go vet ./...; $(patient) go test -short -count=1 -timeout $(TEST_TIMEOUT) ./...)
	done
	echo "test-others: passed in $$((SECONDS - begin)) s"

# Run at full size the tests that are smaller in `make test`.
.PHONY: test-large
test-large: $(assets) build bin/test-manager programs
	@sized=$$(grep -rl --include='*_test.go' 'testing\.Short()' cmd hack internal test webhooks | xargs -n1 dirname | sort -u | sed 's|^|./|' | grep -vE '/test/($(at_length))$$')
	go test $(race) -timeout $(TEST_TIMEOUT) $(raced)
	$(patient) go test -count=1 -p 1 -timeout $(TEST_TIMEOUT) $$($(call tested,ImportPath,$$sized) | grep -vxF -f <(go list $(raced)))

.PHONY: test-all
test-all: test test-others test-large ## Run all tests, then those at full size that are smaller in `make test`.

# Suites whose full size takes more than a quarter of an hour, and the contract, which
# `make test-others` runs at full size.
at_length := e2e/(contract|incluster|migrate)|perf/plugin

# Import 2,500 addresses from Metal3's provider and 1,000 from a CSV file, and kill the import at
# every write: about eleven minutes.
.PHONY: import-at-length
import-at-length: $(assets) build capi bin/providers/metal3
	@$(patient) go test -count=1 -v -timeout 60m ./test/e2e/migrate

# Have the in-cluster provider and Cadastre serve 1,000 addresses in turn, ten times each with kills, and
# compare their rates: about half an hour.
.PHONY: move-at-length
move-at-length: $(assets) build bin/test-manager capi bin/providers/in-cluster
	@$(patient) go test -count=1 -v -timeout 60m ./test/e2e/incluster

RUNS ?=
BUSY ?= 4
AT_ONCE ?= 1
SUITES ?=
# The suites that `make stress` runs 20 times, and the others 5 times.
core := /(internal/controller/[a-z]+|e2e/(integration|contract|security)|chaos/(torture|model|model/pools))$$

.PHONY: stress
stress: $(assets) build bin/test-manager programs ## Run the suites again and again beside BUSY (default 4) busy loops: RUNS times those that match SUITES.
	@directories=$$($(call tested,Dir,./envtest ./hack/... ./internal/certs ./internal/controller/... ./internal/operator ./internal/testing/... ./webhooks ./test/...)
	  $(foreach module,$(modules),(cd $(module); $(call tested,Dir,./...));))
	out=$$(realpath -m $(OUT)/stress) stress=$$($(TOOL) -n stress) failed=0
	rm -rf $$out
	mkdir -p $$out
	trap 'kill $$(jobs -p) 2>/dev/null || true' EXIT
	for ((i = 0; i < $(BUSY); i++)); do while kill -0 $$$$ 2>/dev/null; do :; done & done
	for directory in $$(grep -E '$(or $(SUITES),.)' <<<"$$directories"); do
	  suite=$${directory#$(CURDIR)/} runs=5
	  log=$$out/$${suite//\//-}
	  [[ ! $$directory =~ $(core) ]] || runs=20
	  echo "stress: $$suite"
	  cd $$directory
	  go test -c -o $$log.test .
	  $(patient) $$stress -p $(AT_ONCE) -count $(or $(RUNS),$$runs) -timeout 60m -o $$log. $$log.test -test.short || failed=1
	done
	echo "stress: the tests that failed, and how often; $$out has what their runs printed"
	find $$out -name '*.[0-9]*' -exec sed 's/\x1b\[[0-9;]*m//g' {} + | grep -oE '^ *(--- FAIL: [^ ]+|\[FAIL\] .*|panic: .*)' | sort | uniq -c || true
	exit $$failed

FUZZTIME ?= 20s

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME (default 20s).
	@for package in $$(go list ./internal/... ./webhooks); do
	  for target in $$(go test -list '^Fuzz' $$package | grep '^Fuzz' || true); do
	    echo "fuzz: $$package $$target for $(FUZZTIME)"
	    go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$package
	  done
	done

DURATION ?= 10m
SEED ?= 0
ALLOCATIONS ?= 0
FAULTS ?= 0
CLIENTS ?= 0
MANAGERS ?= 0
PAUSE ?= 0

.PHONY: torture
torture: $(assets) bin/test-manager bin/torture ## Run real managers under faults for DURATION (default 10m), with choices by SEED.
	@bin/torture -duration=$(DURATION) -allocations=$(ALLOCATIONS) -faults=$(FAULTS) -seed=$(SEED) -clients=$(CLIENTS) -managers=$(MANAGERS) -pause=$(PAUSE)

# Break the operator's promises, one at a time, and see the torture harness find each within a
# minute.
.PHONY: torture-selftest
torture-selftest: $(assets)
	@TORTURE_SELFTEST=all go test -count=1 -v -timeout $(TEST_TIMEOUT) -run TestHarnessDetectsFailpoints ./test/chaos/torture

# Write the figures of the last `make torture` into docs/reliability.md.
.PHONY: torture-report
torture-report: bin/torture
	@bin/torture report out/torture/report.json >$(OUT)/torture.md
	go run ./hack/cmd/splice docs/reliability.md torture <$(OUT)/torture.md

# Run a hub and two clusters under faults for DURATION, with choices by SEED.
.PHONY: hubs
hubs: $(assets) build bin/test-manager
	@mkdir -p $(OUT)
	HUBS_DURATION=$(DURATION) SEED=$(SEED) HUBS_FIGURES=$(CURDIR)/$(OUT)/hubs.md HUBS_RATES=$(CURDIR)/$(OUT)/hubs-rates.md $(patient) go test -count=1 -v -timeout 3h ./test/chaos/hubs

# Write the figures of the last `make hubs` into docs/reliability.md.
.PHONY: hubs-report
hubs-report:
	@go run ./hack/cmd/splice docs/reliability.md hubs <$(OUT)/hubs.md
	go run ./hack/cmd/splice docs/reliability.md hub-rates <$(OUT)/hubs-rates.md

MUTATIONS ?= 10000

# Send random mutations of valid objects through the API server.
.PHONY: hostile
hostile: $(assets) build
	@MUTATIONS=$(MUTATIONS) SEED=$(SEED) go test -count=1 -v -timeout $(TEST_TIMEOUT) ./test/e2e/hostile

STORM ?= 5m

# Let a hostile tenant misuse the operator beside an honest one.
.PHONY: tenants
tenants: $(assets) build
	@STORM=$(STORM) SEED=$(SEED) go test -count=1 -v -timeout 1h ./test/e2e/tenants

# The packages that are changed; the tests of all of them judge each change.
MUTATED ?= ./webhooks ./internal/allocator ./internal/inventory ./internal/queue ./internal/ledger ./internal/ipam ./internal/ipam/space ./internal/convert ./internal/authorize \
  ./internal/controller/... ./internal/certs ./internal/operator
SAMPLE ?= 0

.PHONY: mutants
mutants: $(assets) ## Change the code in small ways, and list the changes that no test notices: SAMPLE of them, drawn by SEED, or all. Continues a run that was cut off.
	@mkdir -p $(OUT)
	go build -o $(OUT)/mutants ./hack/cmd/mutants
	exec $(OUT)/mutants -out=$(OUT)/mutants.json -sample=$(SAMPLE) -seed=$(SEED) -control-planes $(MUTATED)

# Write what the last `make mutants` has found into docs/reliability.md.
.PHONY: mutants-document
mutants-document:
	@go run ./hack/cmd/mutants table $(OUT)/mutants.json hack/mutants/explained.txt >$(OUT)/mutants.md
	go run ./hack/cmd/splice docs/reliability.md mutants <$(OUT)/mutants.md

# Measure what the largest objects cost a replica, into docs/reliability.md.
.PHONY: largest
largest: $(assets)
	@mkdir -p $(OUT)
	LARGEST=$(CURDIR)/$(OUT)/largest.md go test -count=1 -run TestLargestObjectCostsLittle ./webhooks
	go run ./hack/cmd/splice docs/reliability.md largest <$(OUT)/largest.md

# Write the picture of a trace into docs/tracing.md.
.PHONY: trace-picture
trace-picture: $(assets) build
	@mkdir -p $(OUT)
	TRACE_PICTURE=$(CURDIR)/$(OUT)/trace.md go test -count=1 -run 'TestTracing/one_trace' ./test/e2e/tracing
	go run ./hack/cmd/splice docs/tracing.md picture <$(OUT)/trace.md
