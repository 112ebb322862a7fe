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

# Files of a release are the same bytes each time: nothing in them tells when they were made. A zip
# has no earlier time than this one.
RELEASE_IMG ?= cadastre-manager:$(VERSION)
epoch := 1980-01-01T00:00:00Z
stamped = -trimpath -buildvcs=false -ldflags="-s -w -X github.com/cadastre-dev/cadastre/internal/version.stamped=$(VERSION)"

# The platforms of the plug-in, and those for which `make release` builds it.
platforms := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64
PLATFORMS ?= $(platforms)

.PHONY: release
release: $(if $(assets),bin/k8s/kubectl) ## Write all files of a release into out/release; VERSION says which, RELEASE_IMG with which image.
	@[[ $(VERSION) =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-.+)?$$ ]] || { echo 'release: "$(VERSION)" is no version: give one such as v0.1.0'; exit 1; }
	rm -rf $(OUT)/release
	$(MAKE) release-manifests VERSION=$(VERSION) IMG=$(RELEASE_IMG) OUT=$(OUT)/release
	for of in default overlays/cert-manager; do
	  $(KUBEBUILDER_ASSETS)/kubectl kustomize config/$$of | sed 's|cadastre-manager:dev|$(RELEASE_IMG)|' \
	    >$(OUT)/release/install$$(sed -n 's|overlays/|-|p' <<<$$of).yaml
	done
	$(MAKE) release-chart release-plugin $(if $(filter-out $(PLATFORMS),$(platforms)),,release-krew) VERSION=$(VERSION)
	$(MAKE) sbom VERSION=$(VERSION) SBOM=$(OUT)/release
	cd $(OUT)/release
	sha256sum -- * >checksums.txt
	echo "release: $(VERSION) is in $(OUT)/release"
	ls -1

# Package the chart, with the image of the release as the default one.
.PHONY: release-chart
release-chart: bin/helm
	@image=$(RELEASE_IMG) tag= digest=
	case $${image##*/} in
	*@*) repository=$${image%@*} digest=$${image#*@} ;;
	*:$(VERSION)) repository=$${image%:*} ;; # the tag is the appVersion
	*:*) repository=$${image%:*} tag=$${image##*:} ;;
	*) echo "release: image $$image has neither a tag nor a digest: give one such as registry.example.com/cadastre:v0.1.0"; exit 1 ;;
	esac
	into=$$(mktemp -d)
	trap 'rm -rf "$$into"' EXIT
	cp -r config/charts/cadastre "$$into"
	sed -i -e "s|^  repository: .*|  repository: $$repository|" -e "s|^  tag: .*|  tag: \"$$tag\"|" -e "s|^  digest: .*|  digest: \"$$digest\"|" "$$into/cadastre/values.yaml"
	find "$$into" -exec touch -d $(epoch) {} +
	HELM_CACHE_HOME=$$into HELM_CONFIG_HOME=$$into HELM_DATA_HOME=$$into \
	  bin/helm package "$$into/cadastre" --version=$(VERSION:v%=%) --app-version=$(VERSION) --destination=$(OUT)/release

# Build the plug-in, and archive it, for each platform.
.PHONY: release-plugin
release-plugin:
	@into=$$(mktemp -d) out=$$(realpath -m $(OUT)/release)
	trap 'rm -rf "$$into"' EXIT
	mkdir -p "$$out"
	for platform in $(PLATFORMS); do
	  rm -f "$$into"/*
	  archive=$$out/kubectl-ipam_$${platform/\//_}
	  CGO_ENABLED=0 GOOS=$${platform%/*} GOARCH=$${platform#*/} go build $(stamped) -o "$$into/" ./cmd/kubectl-ipam
	  cp cmd/kubectl-ipam/kubectl_complete-ipam LICENSE "$$into"
	  chmod 755 "$$into"/kubectl*
	  chmod 644 "$$into/LICENSE"
	  touch -d $(epoch) "$$into"/*
	  case $$platform in
	  windows/*) (cd "$$into"; TZ=UTC zip -qX9 "$$archive.zip" *) ;;
	  *) (cd "$$into"; tar -c --format=ustar --owner=0 --group=0 --numeric-owner -- * | gzip -n9 >"$$archive.tar.gz") ;;
	  esac
	done

# Fill in the manifest for Krew, as krew-release-bot does.
.PHONY: release-krew
release-krew:
	@cd $(OUT)/release
	sed 's/{{ .TagName }}/$(VERSION)/' $(CURDIR)/.krew.yaml >ipam.yaml
	for archive in kubectl-ipam_*; do
	  read -r sum _ < <(sha256sum "$$archive")
	  sed -i "s|{{ addURIAndSha \"\(.*/$$archive\)\" .TagName }}|uri: \1\n    sha256: $$sum|" ipam.yaml
	done
	if grep addURIAndSha ipam.yaml; then echo "release: .krew.yaml names an archive that the release does not have"; exit 1; fi

SBOM ?= $(OUT)/sbom

# Write the modules of which the operator and the plug-in are built into out/sbom, as CycloneDX has
# them; VERSION says which version.
.PHONY: sbom
sbom:
	@mkdir -p $(SBOM)
	for program in manager kubectl-ipam; do
	  CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go build $(stamped) -o $(SBOM)/program ./cmd/$$program
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
