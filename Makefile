# Cadastre. `make help` lists the targets.
#
# Needs Go, make, git and bash. Everything else, the control plane included, is built from Go
# modules that hack/tools and hack/build/* pin. The tests of the browser view need Chromium and
# Node as well. test/README.md describes the tests; what is not listed by `make help` is in
# hack/make.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.ONESHELL:
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

REPLICAS ?= 1
# false: without the CRDs of Cluster API in `make demo` and `make up`.
CLUSTER_API ?= true
IN_CLUSTER_POOLS ?= false

# What is released, and the image that the manifests name: clusterctl takes only a
# name with a registry.
VERSION ?= $(shell git describe --tags --match 'v*' 2>/dev/null || echo v0.1.0)
IMG ?= localhost/cadastre:$(VERSION)
OUT ?= out

TOOL := go tool -modfile=hack/tools/go.mod
CONTROLLER_GEN := $(TOOL) controller-gen
GOLANGCI_LINT := $(TOOL) golangci-lint
# Not in hack/tools: golangci-lint pins another version of the YAML library.
ACTIONLINT := go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

# The directory with etcd, etcdutl, kube-apiserver, kube-controller-manager and kubectl.
# Set in the environment, it is used as it is; otherwise `make controlplane`
# builds it.
ifeq ($(origin KUBEBUILDER_ASSETS),undefined)
KUBEBUILDER_ASSETS := $(CURDIR)/bin/k8s
assets := controlplane
endif
export KUBEBUILDER_ASSETS

# Separate modules that are tested and linted like the main one.
modules := api test/example-provider test/gitops test/perf/plots

.PHONY: help
help: ## Show this list.
	@awk 'BEGIN { FS = ":.*## " } \
	  /^[a-z][a-z-]*:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(assets) build bin/dev ## Start everything, claim blocks from config/samples, stay until Ctrl-C.
	@bin/dev demo --replicas=$(REPLICAS) --cluster-api=$(CLUSTER_API) --in-cluster-pools=$(IN_CLUSTER_POOLS)

.PHONY: up
up: $(assets) build bin/dev ## Start the same in the background; REPLICAS=2 runs two managers, CLUSTER_API=false leaves its CRDs out, IN_CLUSTER_POOLS=true serves the in-cluster provider's pools.
	@bin/dev up --replicas=$(REPLICAS) --cluster-api=$(CLUSTER_API) --in-cluster-pools=$(IN_CLUSTER_POOLS)

.PHONY: down
down: bin/dev ## Stop what `make up` started.
	@bin/dev down

.PHONY: build
build: bin/manager ## Build the operator into bin/.

.PHONY: plugin
plugin: bin/kubectl-ipam ## Build the kubectl plug-in into bin/; in a directory of PATH it is `kubectl ipam`.
	@cp cmd/kubectl-ipam/kubectl_complete-ipam bin/
	echo "plugin: bin/kubectl-ipam, and bin/kubectl_complete-ipam, by which kubectl completes its words"
	echo 'plugin: to use them from here: export PATH="$$PWD/bin:$$PATH"'

# Go decides what is out of date. The flags are those of `go test`, so that both share the build
# cache.
.PHONY: bin/manager bin/test-manager bin/dev bin/torture bin/bench bin/kubectl-ipam
bin/kubectl-ipam:
	@go build -o $@ ./cmd/kubectl-ipam
bin/manager:
	@go build -o $@ ./cmd/manager
bin/test-manager:
	@go build -o $@ ./test/framework/manager
bin/dev:
	@go build -o $@ ./hack/cmd/dev
bin/torture:
	@go build -o $@ ./test/chaos/cmd/torture
bin/bench:
	@go build -o $@ ./test/perf/cmd/bench

.PHONY: lint
lint: ## Run the linters.
	$(GOLANGCI_LINT) run
	$(ACTIONLINT)
	for module in $(modules) hack/build/prometheus; do
	  cd $(CURDIR)/$$module
	  go mod tidy -diff
	  go tool -modfile=$(CURDIR)/hack/tools/go.mod golangci-lint run --config $(CURDIR)/.golangci.yml
	done

# Look for known vulnerabilities in the operator and in what it is built of.
.PHONY: vulnerabilities
vulnerabilities:
	@out=$$($(TOOL) govulncheck ./cmd/... 2>&1) && code=0 || code=$$?
	echo "$$out"
	if ((code != 0)) && grep -q 'fetching vulnerabilities' <<<"$$out"; then
	  echo "NOT CHECKED: the database of vulnerabilities cannot be reached from here"
	  exit 0
	fi
	exit $$code

include hack/make/generate.mk hack/make/test.mk hack/make/bench.mk hack/make/web.mk hack/make/release.mk hack/make/build.mk
