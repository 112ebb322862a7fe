// The CRDs of Cluster API's provider for Proxmox, with which test/e2e/incluster shows that its rules
// accept the pools that are served. Nothing is built from it.
module github.com/cadastre-dev/cadastre/hack/build/proxmox

go 1.26.0

require github.com/ionos-cloud/cluster-api-provider-proxmox v0.7.0
