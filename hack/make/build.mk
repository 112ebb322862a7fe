# Programs of other projects, built from the modules in hack/build that pin them.

# built makes the rule of a program: $(1) is built of the package $(3) by the module $(2), with
# the version of a module under prefixes, $(4).
define built
$(1): hack/build/build $$(wildcard $$(addprefix hack/build/$(2)/,go.mod go.sum *.go */*.go))
	@hack/build/build $(2) $(3) $$@ $(4)
endef

k8s := k8s.io/kubernetes k8s.io/component-base/version k8s.io/client-go/pkg/version
cluster_api := sigs.k8s.io/cluster-api sigs.k8s.io/cluster-api/version

$(eval $(call built,bin/k8s/etcd,controlplane,go.etcd.io/etcd/server/v3))
$(eval $(call built,bin/k8s/etcdutl,controlplane,go.etcd.io/etcd/etcdutl/v3))
$(eval $(call built,bin/k8s/kube-apiserver,controlplane,k8s.io/kubernetes/cmd/kube-apiserver,$(k8s)))
$(eval $(call built,bin/k8s/kube-controller-manager,controlplane,k8s.io/kubernetes/cmd/kube-controller-manager,$(k8s)))
$(eval $(call built,bin/k8s/kubectl,controlplane,k8s.io/kubernetes/cmd/kubectl,$(k8s)))
$(eval $(call built,bin/capi/manager,capi,sigs.k8s.io/cluster-api/core,$(cluster_api)))
$(eval $(call built,bin/capi/clusterctl,capi,sigs.k8s.io/cluster-api/cmd/clusterctl,$(cluster_api)))
$(eval $(call built,bin/helm,helm,helm.sh/helm/v4/cmd/helm,helm.sh/helm/v4 helm.sh/helm/v4/internal/version))
$(eval $(call built,bin/cert-manager,certmanager,.))
$(eval $(call built,bin/goreleaser-check,goreleaser,.))
$(eval $(call built,bin/prometheus/promtool,prometheus,github.com/prometheus/prometheus/cmd/promtool))
$(eval $(call built,bin/prometheus/expressions,prometheus,./expressions))
$(eval $(call built,bin/providers/in-cluster,incluster,sigs.k8s.io/cluster-api-ipam-provider-in-cluster))

# Prometheus would find targets in every cloud: without that it is built in a minute.
bin/prometheus/%: export GOFLAGS := -tags=remove_all_sd

# The CRDs of Metal3's provider, generated from its API as its own are.
bin/providers/metal3: hack/build/metal3/go.mod hack/build/metal3/go.sum
	@generator=$$($(TOOL) -n controller-gen)
	cd hack/build/metal3
	go mod download github.com/metal3-io/ip-address-manager/api
	$$generator crd paths=github.com/metal3-io/ip-address-manager/api/v1alpha1 output:crd:dir=$(CURDIR)/$@
	touch $(CURDIR)/$@

# axe-core judges the accessibility of the browser view.
bin/axe.min.js: web/package.json web/package-lock.json
	@mkdir -p bin
	into=$$(mktemp -d)
	trap 'rm -rf "$$into"' EXIT
	cp web/package.json web/package-lock.json "$$into"
	npm ci --prefix "$$into" --omit=dev --no-audit --no-fund --ignore-scripts --loglevel=error
	cp "$$into/node_modules/axe-core/axe.min.js" $@

.PHONY: controlplane capi helm cert-manager goreleaser prometheus providers browser programs
controlplane: $(addprefix bin/k8s/,etcd etcdutl kube-apiserver kube-controller-manager kubectl) ## Build etcd, kube-apiserver, kube-controller-manager and kubectl into bin/k8s.
capi: bin/capi/manager bin/capi/clusterctl
helm: bin/helm
cert-manager: bin/cert-manager
goreleaser: bin/goreleaser-check
prometheus: bin/prometheus/promtool bin/prometheus/expressions
providers: bin/providers/in-cluster bin/providers/metal3
browser:
	@for tool in chromium node npm; do
	  command -v $$tool >/dev/null || echo "browser: $$tool is missing: tests of the browser view are skipped (in Debian: apt-get install chromium nodejs npm)"
	done
	if command -v npm >/dev/null; then $(MAKE) bin/axe.min.js; fi
# What `make test-others` needs beside a control plane.
programs: capi helm cert-manager goreleaser prometheus providers browser
