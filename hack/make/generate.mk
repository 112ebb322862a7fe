# What is generated: code, manifests, parts of documents, and the chart.

.PHONY: generate
generate: manifests docs chart ## Write all that is generated: deep copies, CRDs, roles, webhooks, dashboards, the Helm chart, references and tables.

# The directories with markers, and the CRDs of Cluster API that package envtest installs.
marked := github.com/cadastre-dev/cadastre/api/...;./internal/...;./webhooks/...;./cmd/...
needed := cluster.x-k8s.io_clusters.yaml ipam.cluster.x-k8s.io_ipaddressclaims.yaml ipam.cluster.x-k8s.io_ipaddresses.yaml

.PHONY: manifests
manifests:
	@$(CONTROLLER_GEN) object crd rbac:roleName=cadastre-manager webhook \
	  paths='$(marked)' \
	  output:crd:dir=config/crd/bases output:rbac:dir=config/rbac output:webhook:dir=config/webhook
	$(CONTROLLER_GEN) crd:maxDescLen=0 output:crd:dir=$(OUT)/cluster-api \
	  paths='sigs.k8s.io/cluster-api/api/core/v1beta2;sigs.k8s.io/cluster-api/api/ipam/v1beta2'
	cp $(addprefix $(OUT)/cluster-api/,$(needed)) envtest/clusterapi/
	$(CONTROLLER_GEN) crd output:crd:dir=config/in-cluster-pools/bases \
	  paths=sigs.k8s.io/cluster-api-ipam-provider-in-cluster/api/v1alpha2
	cd test/example-provider
	go tool -modfile=$(CURDIR)/hack/tools/go.mod controller-gen object crd paths=./... output:crd:dir=config/crd

.PHONY: docs
docs:
	@$(TOOL) crd-ref-docs --log-level=ERROR --source-path=api/v1alpha1 --config=hack/tools/api-reference/config.yaml \
	  --templates-dir=hack/tools/api-reference --renderer=markdown --output-path=docs/api.md
	go run ./hack/cmd/docs

.PHONY: chart
chart: $(if $(assets),bin/k8s/kubectl)
	@mkdir -p $(OUT)/chart
	$(KUBEBUILDER_ASSETS)/kubectl kustomize config/overlays/cert-manager >$(OUT)/chart/default.yaml
	for optional in policy/mutating in-cluster-pools hub-provisioner prometheus/service-monitor prometheus/pod-monitor prometheus/rules dashboards; do
	  $(KUBEBUILDER_ASSETS)/kubectl kustomize config/$$optional >$(OUT)/chart/$${optional#*/}.yaml
	done
	go run ./hack/cmd/chart config/charts/cadastre $(OUT)/chart/{default,mutating,in-cluster-pools,hub-provisioner,service-monitor,pod-monitor,rules,dashboards}.yaml

# Write docs/messages.md from runs of the tests with bad inputs.
.PHONY: messages
messages: $(assets)
	@noting=$$(grep -rl --include='*_test.go' 'messages\.\(Golden\|Updating\)(' internal webhooks | xargs -n1 dirname | sort -u)
	go test $$(printf './%s ' $$noting) -update
	go test ./internal/testing/messages -update
