# Cadastre. `make help` lists the targets.
#
# Needs Go, make, git and bash. Everything else, the control plane included, is
# built from Go modules pinned in go.mod, hack/tools/go.mod
# and the go.mod of hack/build/controlplane, capi, helm, certmanager, goreleaser, incluster,
# metal3 and prometheus. The tests of the browser view need Chromium and Node too: without them
# they are skipped.
# test/README.md describes the suites.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.ONESHELL:
MAKEFLAGS += --no-print-directory

REPLICAS ?= 1
# false: without the CRDs of Cluster API in `make demo` and `make up`.
CLUSTER_API ?= true
FUZZTIME ?= 20s
MUTATIONS ?= 10000
BENCH_COUNT ?= 5
TEST_TIMEOUT ?= 15m
# How many suites `make test` runs at a time: they wait more than they work.
SIDE_BY_SIDE ?= 3
# `make stress`: see test/stress. A suite takes several times as long beside busy loops.
RUNS ?=
BUSY ?= 4
SUITES ?=
STRESS_TIMEOUT ?= 60m
DURATION ?= 10m
SEED ?= 0
CLIENTS ?= 0
MANAGERS ?= 0
PAUSE ?= 0
STORM ?= 5m
ALLOCATIONS ?= 0
FAULTS ?= 0
SAMPLE ?= 0
RECORDS ?= 100000
FIGURES ?= docs/reliability.md

# What is released, and the image that the manifests name: clusterctl takes only a
# name that says where the image is.
VERSION ?= $(shell git describe --tags --match 'v*' 2>/dev/null || echo v0.1.0)
IMG ?= localhost/cadastre:$(VERSION)
OUT ?= out

TOOL := go tool -modfile=hack/tools/go.mod
CONTROLLER_GEN := $(TOOL) controller-gen
GOLANGCI_LINT := $(TOOL) golangci-lint

# The directory with etcd, etcdutl, kube-apiserver, kube-controller-manager and kubectl.
# Set in the environment, it is used as it is; otherwise `make controlplane`
# builds it.
ifeq ($(origin KUBEBUILDER_ASSETS),undefined)
KUBEBUILDER_ASSETS := $(CURDIR)/bin/k8s
assets := controlplane
endif
export KUBEBUILDER_ASSETS

# The directories whose code carries markers, as controller-gen lists them.
empty :=
marked := $(subst $(empty) ./,;./,$(patsubst %,./%/...,$(wildcard api internal webhooks cmd)))

# The example of a provider, a module of its own.
provider := test/example-provider
# Modules of their own that are tested and linted as the whole is.
modules := $(provider) test/gitops

# The race detector needs a C compiler; without one those tests run all the same.
race := $(if $(shell command -v $${CC:-gcc}),-race)

##@ General

.PHONY: help
help: ## Show this list.
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z][a-z-]*:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ Try it

.PHONY: demo
demo: $(assets) build bin/dev ## Start everything, claim blocks from config/samples, stay until Ctrl-C.
	@bin/dev demo --replicas=$(REPLICAS) --cluster-api=$(CLUSTER_API)

.PHONY: up
up: $(assets) build bin/dev ## Start the same in the background; REPLICAS=2 runs two managers, CLUSTER_API=false leaves its CRDs out.
	@bin/dev up --replicas=$(REPLICAS) --cluster-api=$(CLUSTER_API)

.PHONY: down
down: bin/dev ## Stop what `make up` started.
	@bin/dev down

##@ Build

.PHONY: build
build: bin/manager ## Build the operator into bin/.

.PHONY: plugin
plugin: bin/kubectl-ipam ## Build the kubectl plug-in into bin/; in a directory of PATH it is `kubectl ipam`.
	@cp cmd/kubectl-ipam/kubectl_complete-ipam bin/
	echo "plugin: bin/kubectl-ipam, and bin/kubectl_complete-ipam, by which kubectl completes its words"
	echo 'plugin: to use them from here: export PATH="$$PWD/bin:$$PATH"'

# Go decides what is out of date.
.PHONY: bin/manager bin/dev bin/torture bin/bench bin/kubectl-ipam
bin/kubectl-ipam:
	@CGO_ENABLED=0 go build -trimpath -o $@ ./cmd/kubectl-ipam
bin/manager:
	@go build -trimpath -o $@ ./cmd/manager
bin/dev:
	@go build -trimpath -o $@ ./hack/cmd/dev
bin/torture:
	@go build -trimpath -o $@ ./test/chaos/cmd/torture
bin/bench:
	@go build -trimpath -o $@ ./test/perf/cmd/bench

.PHONY: generate
generate: ## Write deep copies, CRDs, the RBAC role and the webhook manifests from the markers in the code, those of the example provider included.
	@$(CONTROLLER_GEN) object crd rbac:roleName=cadastre-manager webhook \
	  paths='$(marked)' \
	  output:crd:dir=config/crd/bases output:rbac:dir=config/rbac output:webhook:dir=config/webhook
	$(CONTROLLER_GEN) crd:maxDescLen=0 output:crd:dir=$(OUT)/cluster-api \
	  paths='sigs.k8s.io/cluster-api/api/core/v1beta2;sigs.k8s.io/cluster-api/api/ipam/v1beta2'
	cp $(addprefix $(OUT)/cluster-api/,$(needed)) envtest/clusterapi/
	cd $(provider)
	go tool -modfile=$(CURDIR)/hack/tools/go.mod controller-gen object crd paths=./... output:crd:dir=config/crd

# The CRDs of Cluster API that package envtest installs where they are missing.
needed := cluster.x-k8s.io_clusters.yaml ipam.cluster.x-k8s.io_ipaddressclaims.yaml ipam.cluster.x-k8s.io_ipaddresses.yaml

.PHONY: messages
messages: ## Write docs/messages.md, and which messages the tests' bad inputs lead to.
	@noting=$$(grep -rl --include='*_test.go' 'messages\.\(Golden\|Updating\)(' internal webhooks | xargs -n1 dirname | sort -u)
	go test $$(printf './%s ' $$noting) -update
	go test ./test/lint/messages -update

.PHONY: reference
reference: ## Write docs/kubectl-ipam/, the reference of the kubectl plug-in.
	@go run ./hack/cmd/reference docs/kubectl-ipam
	mkdir -p $(OUT)
	go run ./hack/cmd/reference rights >$(OUT)/rights.md
	go run ./hack/cmd/splice docs/kubectl-ipam/README.md rights <$(OUT)/rights.md

.PHONY: api-reference
api-reference: ## Write docs/api.md, the reference of the API, from its Go types.
	@mkdir -p $(OUT)
	$(TOOL) crd-ref-docs --log-level=ERROR --source-path=api/v1alpha1 --config=hack/tools/api-reference/config.yaml \
	  --templates-dir=hack/tools/api-reference --renderer=markdown --output-path=$(OUT)/api.md
	go run ./hack/cmd/apireference >>$(OUT)/api.md
	cat -s $(OUT)/api.md >docs/api.md

.PHONY: chart
chart: $(if $(assets),bin/k8s/kubectl) ## Write what is generated of the Helm chart: templates, flags among the values, and the table of values.
	@mkdir -p $(OUT)/chart
	$(KUBEBUILDER_ASSETS)/kubectl kustomize config/overlays/cert-manager >$(OUT)/chart/default.yaml
	for optional in policy/mutating prometheus/service-monitor prometheus/pod-monitor prometheus/rules dashboards; do
	  $(KUBEBUILDER_ASSETS)/kubectl kustomize config/$$optional >$(OUT)/chart/$${optional#*/}.yaml
	done
	go run ./hack/cmd/chart config/charts/cadastre $(OUT)/chart/{default,mutating,service-monitor,pod-monitor,rules,dashboards}.yaml

.PHONY: dashboards
dashboards: ## Write the dashboards for Grafana into config/dashboards, and what docs/dashboards.md says of their panels.
	@mkdir -p $(OUT)
	go run ./hack/cmd/dashboards . >$(OUT)/panels.md
	go run ./hack/cmd/splice docs/dashboards.md panels <$(OUT)/panels.md

.PHONY: metrics-document
metrics-document: ## Write the table of metrics into docs/metrics.md.
	@mkdir -p $(OUT)
	go run ./hack/cmd/metrics >$(OUT)/metrics.md
	go run ./hack/cmd/splice docs/metrics.md metrics <$(OUT)/metrics.md

.PHONY: history-document
history-document: ## Write the tables of the history's fields and reasons into docs/history.md.
	@mkdir -p $(OUT)
	go run ./hack/cmd/history >$(OUT)/history.md
	go run ./hack/cmd/splice docs/history.md history <$(OUT)/history.md

.PHONY: tracing-document
tracing-document: $(assets) build ## Write the tables of spans, and the picture of a trace, into docs/tracing.md.
	@mkdir -p $(OUT)
	go run ./hack/cmd/tracing spans >$(OUT)/spans.md
	go run ./hack/cmd/splice docs/tracing.md spans <$(OUT)/spans.md
	go run ./hack/cmd/tracing attributes >$(OUT)/attributes.md
	go run ./hack/cmd/splice docs/tracing.md attributes <$(OUT)/attributes.md
	TRACE_PICTURE=$(CURDIR)/$(OUT)/trace.md go test -count=1 -run 'TestTracing/one_trace' ./test/e2e/tracing
	go run ./hack/cmd/splice docs/tracing.md picture <$(OUT)/trace.md

# clusterctl fills in what is left in ${...}. The namespace is one of those, as some
# of what names it is beyond what clusterctl rewrites for --target-namespace.
.PHONY: release-manifests
release-manifests: $(if $(assets),bin/k8s/kubectl) ## Write what clusterctl installs into out/; IMG and VERSION say which image.
	@IFS=. read -r major minor _ <<<"$(VERSION:v%=%)"
	grep -A1 "major: $$major" config/overlays/clusterctl/metadata.yaml | grep -q "minor: $$minor" ||
	  { echo "release: metadata.yaml has no series for $(VERSION)"; exit 1; }
	mkdir -p $(OUT)
	$(KUBEBUILDER_ASSETS)/kubectl kustomize config/overlays/clusterctl >$(OUT)/rendered.yaml
	sed -e 's|cadastre-manager:dev|$(IMG)|' -e 's|cadastre-system|$${CADASTRE_NAMESPACE:=cadastre-system}|g' \
	  $(OUT)/rendered.yaml >$(OUT)/ipam-components.yaml
	rm $(OUT)/rendered.yaml
	cp config/overlays/clusterctl/metadata.yaml $(OUT)/metadata.yaml
	echo "release: $(OUT)/ipam-components.yaml and $(OUT)/metadata.yaml, with $(IMG)"

# Files of a release are the same bytes each time: nothing in them tells when they were made.
RELEASE_IMG ?= cadastre-manager:$(VERSION)
PLATFORMS ?= linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64

.PHONY: release
release: $(if $(assets),bin/k8s/kubectl) ## Write all files of a release into out/release; VERSION says which, RELEASE_IMG with which image.
	@rm -rf $(OUT)/release
	$(MAKE) release-manifests VERSION=$(VERSION) IMG=$(RELEASE_IMG) OUT=$(OUT)/release
	for of in default overlays/cert-manager; do
	  $(KUBEBUILDER_ASSETS)/kubectl kustomize config/$$of | sed 's|cadastre-manager:dev|$(RELEASE_IMG)|' \
	    >$(OUT)/release/install$$(sed -n 's|overlays/|-|p' <<<$$of).yaml
	done
	go run ./hack/cmd/release -platforms=$(PLATFORMS) $(VERSION) $(RELEASE_IMG) $(OUT)/release
	$(MAKE) sbom VERSION=$(VERSION) SBOM=$(OUT)/release
	go run ./hack/cmd/release checksums $(OUT)/release
	echo "release: $(VERSION) is in $(OUT)/release"
	(cd $(OUT)/release; sha256sum --check --quiet checksums.txt; ls -1)

SBOM ?= $(OUT)/sbom

.PHONY: sbom
sbom: ## Write the modules of which the operator and the plug-in are built into out/sbom, as CycloneDX has them; VERSION says which version.
	@mkdir -p $(SBOM)
	for program in manager kubectl-ipam; do
	  CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go build -trimpath -buildvcs=false \
	    -ldflags="-s -w -X github.com/cadastre-dev/cadastre/internal/version.stamped=$(VERSION)" -o $(SBOM)/program ./cmd/$$program
	  $(TOOL) cyclonedx-gomod bin -json -noserial -notimestamp -std -version=$(VERSION) -output=$(SBOM)/$$program.cdx.json $(SBOM)/program
	  rm $(SBOM)/program
	done
	echo "sbom: $(SBOM)/manager.cdx.json and $(SBOM)/kubectl-ipam.cdx.json"

# What builds images of Dockerfiles, the first that is installed.
BUILDERS ?= docker podman nerdctl buildah

.PHONY: image
image: ## Build the operator's image, IMG, by docker, podman, nerdctl or buildah.
	@for builder in $(BUILDERS) ""; do
	  if [[ -n $$builder ]] && command -v $$builder >/dev/null; then break; fi
	done
	[[ -n $$builder ]] || { echo "image: none of $(BUILDERS) is installed: install one of them, or name another by BUILDERS"; exit 1; }
	$$builder build --build-arg VERSION=$(VERSION) --tag $(IMG) .

##@ Check

.PHONY: test
test: $(assets) capi helm cert-manager goreleaser providers prometheus browser build ## Run all tests, the suites on the control plane included, with small counts: about twenty minutes on two cores.
	@$(call tests,-short,$(SIDE_BY_SIDE))

.PHONY: test-all
test-all: test test-large ## Run all tests, and then again at full size those that are smaller in `make test`.

.PHONY: test-large
test-large: $(assets) capi helm cert-manager goreleaser providers prometheus browser build ## Run at full size the tests that are smaller in `make test`, one package after the other.
	@sized=$$(grep -rl --include='*_test.go' 'testing\.Short()' cmd hack internal test webhooks | xargs -n1 dirname | sort -u | xargs printf './%s\n' | xargs go list | grep -vE '/test/($(at_length))$$')
	raced=$$(comm -12 <(sort <<<"$$sized") <(go list $(raced) | sort))
	go test $(race) -v -timeout $(TEST_TIMEOUT) $$raced | $(of_itself)
	$(patient) go test -count=1 -p 1 -v -timeout $(TEST_TIMEOUT) $$(grep -vxF "$$raced" <<<"$$sized") | $(of_itself)

# Suites whose full size takes more than a quarter of an hour: they have targets of their own.
at_length := e2e/migrate|perf/plugin

.PHONY: import-at-length
import-at-length: $(assets) capi providers build ## Import 5,000 addresses from the in-cluster provider and Metal3's, and kill the import at every write: about half an hour.
	@$(patient) go test -count=1 -v -timeout 60m ./test/e2e/migrate

.PHONY: stress
stress: $(assets) capi helm cert-manager goreleaser providers prometheus browser build ## Run the suites that start processes, and the model, while BUSY (default 4) loops take the CPUs: the core 20 times and the others 5 times, or RUNS times; SUITES alone, a pattern of their paths. Sum up what failed.
	@$(sort_packages)
	directories=$$(go list -f '{{.Dir}}' $$explored $$suites
	  for module in $(modules); do
	    (cd $$module; go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}' ./...)
	  done)
	$(patient) RUNS='$(RUNS)' BUSY='$(BUSY)' TEST_TIMEOUT=$(STRESS_TIMEOUT) OUT=$(OUT)/stress \
	  test/stress $$(grep -E '$(or $(SUITES),.)' <<<"$$directories")

# sort_packages sets suites, the packages whose tests start processes, and those that are
# tested in another way.
define sort_packages
raced=$$(go list $(raced))
explored=$$(go list $(explored))
suites=$$(go list -f '{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}}' ./... | awk '$(on_processes) { print own }' | grep -vxF -e "$$raced" -e "$$explored")
endef

# tests runs them with the flag $(1), and $(2) suites at a time.
define tests
say() { echo "test: $$*"; }
begin=$$SECONDS
all=$$(go list ./...)
$(sort_packages)
others=$$(grep -vxF -e "$$raced" -e "$$suites" -e "$$explored" <<<"$$all")
say "vet"
go vet ./...
say "the ledger, the allocator and the register by watch$(if $(race),, (without the race detector: no C compiler))"
go test $(1) $(race) -v -timeout $(TEST_TIMEOUT) $$raced | $(of_itself)
say "the model of the protocol"
go test $(1) -v -timeout $(TEST_TIMEOUT) $$explored | $(of_itself)
say "packages that need no control plane"
go test $(1) -timeout $(TEST_TIMEOUT) $$others
say "suites that start processes, $(2) at a time"
longest=$$(grep -E '/test/[a-z0-9]+/($(longest))$$' <<<"$$suites")
$(patient) go test $(1) -count=1 -p $(2) -timeout $(TEST_TIMEOUT) $$longest $$(grep -vxF "$$longest" <<<"$$suites")
for module in $(modules); do
  say "$$module, a module of its own"
  (cd $$module; go vet ./...; $(patient) go test $(1) -count=1 -timeout $(TEST_TIMEOUT) ./...)
done
say "all passed in $$((SECONDS - begin)) s"
endef

# Leaves out what passes, but for what it says of itself: seeds and counts.
of_itself := { grep -vE '^ *(=== |--- PASS|PASS$$)' || true; }

# The packages that are tested with the race detector.
raced := $(patsubst %,./%/...,$(wildcard internal/ledger internal/allocator cmd/kubectl-ipam/app/live))

# Millions of states, by one goroutine.
explored := ./test/chaos/model/...

# Tests that run programs, such as a control plane: their results are not cached,
# as Go does not see what those programs are. Here are those of test/ and those that
# import from it, other than builders, the collector of traces, what collects messages and what lists flags; what is tested with
# the race detector, and the model, are left out.
on_processes := { own = $$1; sub(/^[^ ]+/, ""); gsub("cadastre/(test/lint/messages|hack/chart|test/framework/build|test/framework/collector)( |$$)", " ") } own !~ /\/test\/(lint\/messages|framework\/build)$$/ && (own $$0) ~ /\/(test|hack)\/|\/envtest/

# The suites that begin first, so that none of them is left alone at the end.
longest := integration|restore|contract|replicas|torture

# The control planes of suites take more memory, and less time of the processors.
patient := CONTROL_PLANE_GOGC=400

.PHONY: lint
lint: ## Run the linters.
	$(GOLANGCI_LINT) run
	for module in $(modules) hack/build/prometheus; do
	  cd $(CURDIR)/$$module
	  go mod tidy -diff
	  go tool -modfile=$(CURDIR)/hack/tools/go.mod golangci-lint run --config $(CURDIR)/.golangci.yml
	done

.PHONY: fuzz
fuzz: ## Run each fuzz target, of the core and of admission, for FUZZTIME (default 20s).
	@for package in $$(go list ./internal/... ./webhooks); do
	  for target in $$(go test -list '^Fuzz' $$package | grep '^Fuzz' || true); do
	    echo "fuzz: $$package $$target for $(FUZZTIME)"
	    go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$package
	  done
	done

.PHONY: torture
torture: $(assets) build bin/torture ## Run real managers under faults for DURATION (default 10m) with choices by SEED; or until ALLOCATIONS and FAULTS; CLIENTS, MANAGERS, PAUSE.
	@bin/torture -duration=$(DURATION) -allocations=$(ALLOCATIONS) -faults=$(FAULTS) -seed=$(SEED) -clients=$(CLIENTS) -managers=$(MANAGERS) -pause=$(PAUSE)

.PHONY: torture-selftest
torture-selftest: $(assets) ## Break the operator's promises, one at a time, and see the torture harness find each within a minute.
	@TORTURE_SELFTEST=all go test -count=1 -v -timeout $(TEST_TIMEOUT) -run TestTheHarnessFindsWhatIsBroken ./test/chaos/torture

.PHONY: torture-report
torture-report: bin/torture ## Write the figures of the last `make torture` into FIGURES (default docs/reliability.md).
	@bin/torture report out/torture/report.json $(FIGURES)

.PHONY: hostile
hostile: $(assets) build ## Send 10,000 random mutations of valid objects through the API server (MUTATIONS, SEED).
	@MUTATIONS=$(MUTATIONS) SEED=$(SEED) go test -count=1 -v -timeout $(TEST_TIMEOUT) ./test/e2e/hostile

.PHONY: tenants
tenants: $(assets) build ## Have a hostile tenant misuse the operator beside an honest one for STORM (default 5m), with choices by SEED.
	@STORM=$(STORM) SEED=$(SEED) go test -count=1 -v -timeout 1h ./test/e2e/tenants

.PHONY: mutants
mutants: $(assets) ## Change the code in small ways, one at a time, and say which changes no test notices: SAMPLE of them, drawn by SEED; all without. A run that was cut off goes on. MUTATED names packages.
	@mkdir -p $(OUT)
	go build -o $(OUT)/mutants ./hack/cmd/mutants
	exec $(OUT)/mutants -out=$(OUT)/mutants.json -sample=$(SAMPLE) -seed=$(SEED) -control-planes $(MUTATED)

# The packages that are changed; the tests of all of them judge each change.
MUTATED ?= ./webhooks ./internal/allocator ./internal/catalogue ./internal/queue ./internal/ledger ./internal/ipam ./internal/ipam/space ./internal/adapt ./internal/requester \
  ./internal/controller/... ./internal/certs ./internal/operator

.PHONY: mutants-document
mutants-document: ## Write what the last `make mutants` has found into docs/reliability.md.
	@go run ./hack/cmd/mutants table $(OUT)/mutants.json hack/mutants/explained.txt >$(OUT)/mutants.md
	go run ./hack/cmd/splice docs/reliability.md mutants <$(OUT)/mutants.md

.PHONY: largest
largest: ## Measure what the largest objects cost a replica, into the table of docs/reliability.md.
	@mkdir -p $(OUT)
	LARGEST=$(CURDIR)/$(OUT)/largest.md go test -count=1 -run TestTheLargestObjectCostsLittle ./webhooks
	go run ./hack/cmd/splice docs/reliability.md largest <$(OUT)/largest.md

.PHONY: vulnerabilities
vulnerabilities: ## Look for known vulnerabilities in what the operator is built of.
	@out=$$($(TOOL) govulncheck ./cmd/... 2>&1) && code=0 || code=$$?
	echo "$$out"
	if ((code != 0)) && grep -q 'fetching vulnerabilities' <<<"$$out"; then
	  echo "NOT CHECKED: the database of vulnerabilities cannot be reached from here"
	  exit 0
	fi
	exit $$code

.PHONY: bench
bench: $(assets) build bin/bench ## Measure the operator on a control plane of its own, into out/: about an hour; QUICK=1: 3 minutes.
	@bin/bench --out=out $(if $(QUICK),--quick) $(if $(ONLY),--only=$(ONLY)) $(if $(PROFILE),--profile=$(PROFILE))

.PHONY: bench-document
bench-document: bin/bench ## Write what make bench measured last into docs/benchmarks.md.
	@bin/bench --document=out/bench.json >out/bench.md
	go run ./hack/cmd/splice docs/benchmarks.md operator <out/bench.md
	mkdir -p docs/plots
	cp out/bench-*.svg docs/plots/

.PHONY: bench-space
bench-space: ## Measure the free space of a pool (BENCH_COUNT runs, default 5) into docs/benchmarks.md.
	@mkdir -p out
	go test -run '^$$' -bench . -benchtime 0.2s -count $(BENCH_COUNT) ./internal/ipam/space | tee out/bench-space.txt
	go run ./internal/ipam/space/benchtable <out/bench-space.txt >out/bench-space.md
	go run ./hack/cmd/splice docs/benchmarks.md space <out/bench-space.md

.PHONY: bench-observed
bench-observed: $(assets) build bin/bench ## Measure what metrics and traces cost, a round without and with them in turn, into docs/tracing.md: about eight minutes; QUICK=1: 2 minutes.
	@bin/bench --out=out/observed --only=observed $(if $(QUICK),--quick)
	go run ./hack/cmd/splice docs/tracing.md cost <out/observed/observed.md

.PHONY: bench-plugin
bench-plugin: $(assets) ## Measure the plug-in with so many allocations beside kubectl, into docs/benchmarks.md (RECORDS, default 100,000): about ten minutes.
	@mkdir -p out
	RECORDS=$(RECORDS) PLUGIN_FIGURES=$(CURDIR)/out/bench-plugin.md $(patient) go test -count=1 -v -timeout 40m ./test/perf/plugin
	go run ./hack/cmd/splice docs/benchmarks.md plugin <out/bench-plugin.md

.PHONY: bench-ui
bench-ui: $(assets) browser ## Measure the page of the plug-in in Chromium with 1,000, 10,000 and RECORDS (default 100,000) blocks, into docs/benchmarks.md: about ten minutes.
	@mkdir -p out
	RECORDS=$(RECORDS) BROWSER_REQUIRED=1 UI_FIGURES=$(CURDIR)/out/bench-ui.md $(patient) go test -count=1 -v -timeout 40m ./test/perf/ui
	go run ./hack/cmd/splice docs/benchmarks.md ui <out/bench-ui.md

##@ Control plane

K8S_BINARIES := $(addprefix bin/k8s/,etcd etcdutl kube-apiserver kube-controller-manager kubectl)

bin/k8s/etcd: package := go.etcd.io/etcd/server/v3
bin/k8s/etcdutl: package := go.etcd.io/etcd/etcdutl/v3
bin/k8s/kube-apiserver: package := k8s.io/kubernetes/cmd/kube-apiserver
bin/k8s/kube-controller-manager: package := k8s.io/kubernetes/cmd/kube-controller-manager
bin/k8s/kubectl: package := k8s.io/kubernetes/cmd/kubectl

.PHONY: controlplane
controlplane: $(K8S_BINARIES) ## Build etcd, etcdutl, kube-apiserver, kube-controller-manager and kubectl into bin/k8s.

# A command of Kubernetes knows its version only when the linker tells it.
$(K8S_BINARIES): hack/build/controlplane/go.mod hack/build/controlplane/go.sum
	@cd hack/build/controlplane; begin=$$SECONDS
	kubernetes=$$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
	module=$$(go list -f '{{.Module.Path}} {{.Module.Version}}' $(package))
	IFS=. read -r major minor _ <<<"$${kubernetes#v}"
	echo "controlplane: building $@ from $$module (minutes for the first, as nothing is compiled yet)"
	CGO_ENABLED=0 go build -trimpath -o $(CURDIR)/$@ -ldflags "-s -w \
	  -X k8s.io/component-base/version.gitVersion=$$kubernetes \
	  -X k8s.io/component-base/version.gitMajor=$$major \
	  -X k8s.io/component-base/version.gitMinor=$$minor \
	  -X k8s.io/client-go/pkg/version.gitVersion=$$kubernetes" $(package)
	touch $(CURDIR)/$@
	echo "controlplane: $@ took $$((SECONDS - begin)) s"

##@ Cluster API

CAPI_BINARIES := $(addprefix bin/capi/,manager clusterctl)

bin/capi/manager: package := sigs.k8s.io/cluster-api/core
bin/capi/clusterctl: package := sigs.k8s.io/cluster-api/cmd/clusterctl

.PHONY: capi
capi: $(CAPI_BINARIES) ## Build Cluster API's core manager and clusterctl into bin/capi.

# clusterctl compares its own version with those of providers.
$(CAPI_BINARIES): hack/build/capi/go.mod hack/build/capi/go.sum
	@cd hack/build/capi; begin=$$SECONDS
	version=$$(go list -m -f '{{.Version}}' sigs.k8s.io/cluster-api)
	IFS=. read -r major minor _ <<<"$${version#v}"
	echo "capi: building $@ from sigs.k8s.io/cluster-api $$version"
	CGO_ENABLED=0 go build -trimpath -o $(CURDIR)/$@ -ldflags "-s -w \
	  -X sigs.k8s.io/cluster-api/version.gitVersion=$$version \
	  -X sigs.k8s.io/cluster-api/version.gitMajor=$$major \
	  -X sigs.k8s.io/cluster-api/version.gitMinor=$$minor" $(package)
	touch $(CURDIR)/$@
	echo "capi: $@ took $$((SECONDS - begin)) s"

##@ Helm

.PHONY: helm
helm: bin/helm ## Build Helm into bin/.

bin/helm: hack/build/helm/go.mod hack/build/helm/go.sum
	@cd hack/build/helm; begin=$$SECONDS
	version=$$(go list -m -f '{{.Version}}' helm.sh/helm/v4)
	echo "helm: building $@ from helm.sh/helm/v4 $$version"
	CGO_ENABLED=0 go build -trimpath -o $(CURDIR)/$@ -ldflags "-s -w \
	  -X helm.sh/helm/v4/internal/version.version=$$version" helm.sh/helm/v4/cmd/helm
	touch $(CURDIR)/$@
	echo "helm: $@ took $$((SECONDS - begin)) s"

##@ cert-manager

.PHONY: cert-manager
cert-manager: bin/cert-manager ## Build the controllers of cert-manager into bin/.

bin/cert-manager: hack/build/certmanager/go.mod hack/build/certmanager/go.sum hack/build/certmanager/main.go
	@cd hack/build/certmanager; begin=$$SECONDS
	echo "cert-manager: building $@"
	CGO_ENABLED=0 go build -trimpath -o $(CURDIR)/$@ -ldflags "-s -w" .
	echo "cert-manager: $@ took $$((SECONDS - begin)) s"

##@ Browser

# axe-core judges the accessibility of the browser view. The suites find Chromium and Node in
# PATH; where one of them is missing, the tests that need it are skipped, and say so.
.PHONY: browser
browser: ## Fetch what the tests of the browser view need beside Chromium, and say what is missing.
	@for tool in chromium node npm; do
	  command -v $$tool >/dev/null || echo "browser: $$tool is missing: tests of the browser view are skipped (in Debian: apt-get install chromium nodejs npm)"
	done
	if command -v npm >/dev/null; then $(MAKE) bin/axe.min.js; fi

bin/axe.min.js: web/package.json web/package-lock.json
	@mkdir -p bin
	into=$$(mktemp -d)
	trap 'rm -rf "$$into"' EXIT
	cp web/package.json web/package-lock.json "$$into"
	npm ci --prefix "$$into" --omit=dev --no-audit --no-fund --ignore-scripts --loglevel=error
	cp "$$into/node_modules/axe-core/axe.min.js" $@

.PHONY: ui-pictures
ui-pictures: $(assets) build browser ## Open the page of the plug-in in Chromium, and make the pictures of it in docs/pictures: about ten minutes.
	@BROWSER_REQUIRED=1 UI_PICTURES=$(CURDIR)/docs/pictures $(patient) go test -short -count=1 -v -timeout $(TEST_TIMEOUT) ./test/e2e/uibrowser
	BROWSER_REQUIRED=1 UI_PICTURES=$(CURDIR)/docs/pictures $(patient) go test -count=1 -v -timeout 40m ./test/perf/ui

##@ Headlamp

# The plug-in for Headlamp. Its tools and tests need Node and npm, and about 900 MB.
.PHONY: headlamp
headlamp: web/node_modules/.package-lock.json ## Check, build and test the plug-in for Headlamp, which is then in web/dist.
	@mkdir -p $(OUT)
	log=$$(realpath $(OUT))/headlamp.log
	cd web; begin=$$SECONDS
	for step in lint format tsc build test; do
	  CI=true npm run --silent $$step >"$$log" 2>&1 || { cat "$$log"; echo "headlamp: npm run $$step failed"; exit 1; }
	done
	sed -n 's/^.* \(Tests .*\)/headlamp: \1/p' "$$log" | sed 's/\x1b\[[0-9;]*m//g'
	echo "headlamp: web/dist/main.js has $$(wc -c <dist/main.js) bytes; it took $$((SECONDS - begin)) s"

# Nothing of these packages is in what is built, and none of their scripts is run.
web/node_modules/.package-lock.json: web/package-lock.json
	@cd web; begin=$$SECONDS
	npm ci --no-audit --no-fund --ignore-scripts --loglevel=error
	touch node_modules/.package-lock.json
	echo "headlamp: its tools took $$((SECONDS - begin)) s"

##@ Goreleaser

.PHONY: goreleaser
goreleaser: bin/goreleaser-check ## Build what reads .goreleaser.yaml as goreleaser does into bin/.

bin/goreleaser-check: hack/build/goreleaser/go.mod hack/build/goreleaser/go.sum hack/build/goreleaser/main.go
	@cd hack/build/goreleaser; begin=$$SECONDS
	CGO_ENABLED=0 go build -trimpath -o $(CURDIR)/$@ .
	echo "goreleaser: $@ took $$((SECONDS - begin)) s"

##@ Prometheus

# The Prometheus whose promtool tests the alerts. It would find targets in every cloud:
# without that it is built in a minute.
.PHONY: prometheus
prometheus: bin/prometheus/promtool bin/prometheus/expressions ## Build what tests the alerts, promtool among it, into bin/prometheus.

bin/prometheus/prometheus: package := github.com/prometheus/prometheus/cmd/prometheus
bin/prometheus/promtool: package := github.com/prometheus/prometheus/cmd/promtool
bin/prometheus/expressions: package := ./expressions

bin/prometheus/prometheus bin/prometheus/promtool bin/prometheus/expressions: hack/build/prometheus/go.mod hack/build/prometheus/go.sum $(wildcard hack/build/prometheus/expressions/*.go)
	@cd hack/build/prometheus; begin=$$SECONDS
	echo "prometheus: building $@"
	CGO_ENABLED=0 go build -trimpath -tags remove_all_sd -o $(CURDIR)/$@ -ldflags "-s -w" $(package)
	touch $(CURDIR)/$@
	echo "prometheus: $@ took $$((SECONDS - begin)) s"

# How long claims are made for the pictures of the dashboards.
PICTURED ?= 6m

.PHONY: dashboard-pictures
dashboard-pictures: $(assets) build bin/prometheus/prometheus ## Run the operator and Prometheus for PICTURED (default 6m), and draw the dashboards with what it answers into docs/pictures.
	@mkdir -p $(OUT) docs/pictures
	go run ./test/perf/cmd/pictures --for=$(PICTURED) record $(OUT)/dashboards.json
	go run ./test/perf/cmd/pictures draw $(OUT)/dashboards.json docs/pictures

##@ Other providers

# What the tests of `kubectl ipam import` move from: the manager of the in-cluster
# provider, and the CRDs of Metal3's, generated from its API as its own are.
PROVIDERS := bin/providers/in-cluster bin/providers/metal3

.PHONY: providers
providers: $(PROVIDERS) ## Build the IPAM providers that tests move from into bin/providers.

bin/providers/in-cluster: hack/build/incluster/go.mod hack/build/incluster/go.sum
	@cd hack/build/incluster; begin=$$SECONDS
	echo "providers: building $@"
	CGO_ENABLED=0 go build -trimpath -o $(CURDIR)/$@ -ldflags "-s -w" sigs.k8s.io/cluster-api-ipam-provider-in-cluster
	touch $(CURDIR)/$@
	echo "providers: $@ took $$((SECONDS - begin)) s"

bin/providers/metal3: hack/build/metal3/go.mod hack/build/metal3/go.sum
	@generator=$$($(TOOL) -n controller-gen)
	cd hack/build/metal3
	go mod download github.com/metal3-io/ip-address-manager/api
	$$generator crd paths=github.com/metal3-io/ip-address-manager/api/v1alpha1 output:crd:dir=$(CURDIR)/$@
	touch $(CURDIR)/$@
