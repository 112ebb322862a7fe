# The files of a release.

# Write what clusterctl installs into out/, with the image IMG. clusterctl fills in what is left in
# ${...}: the namespace, too, as some of what names it is beyond what clusterctl rewrites for
# --target-namespace.
.PHONY: release-manifests
release-manifests: $(if $(assets),bin/k8s/kubectl)
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

# Write the modules of which the operator and the plug-in are built into out/sbom, as CycloneDX has
# them; VERSION says which version.
.PHONY: sbom
sbom:
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
