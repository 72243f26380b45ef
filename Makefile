# Every target sees to what it needs: there is nothing to install by hand except Rust (https://rustup.rs).
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: advisories alerts-test bench browser build chart chart-test clean demo docs docs-test e2e e2e-cloudsigma e2e-deorbit e2e-kube-ovn e2e-kubelet e2e-openstack fmt help image lint playground reference soak test

step := hack/step

# Those that only targets of their own run, so that --all-targets leaves them out.
e2e_tests := chart deorbit kube_ovn kubelet openstack promtool tutorial

help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## compile everything, unoptimised
	@$(step) setup hack/setup base
	@$(step) build cargo build --workspace

test: ## run every test, against a real kube-apiserver, OVN, Keystone and Neutron
	@$(step) setup hack/setup ovn net kube openstack
	@$(step) compile cargo test --workspace --no-run
	@$(step) test hack/test

soak: ## fifty random stops of the leader; ROUNDS=count for more
	@$(step) setup hack/setup ovn kube
	@$(step) soak env GROUNDCREW_ROUNDS=$(or $(ROUNDS),50) cargo test -p groundcrew --test it random_stops -- --nocapture

lint: ## check formatting, clippy, licences and sources of dependencies, and shell scripts
	@$(step) setup hack/setup lint
	@$(step) lockfile cargo metadata --locked --format-version 1 --quiet >/dev/null
	@$(step) fmt cargo fmt --all --check
	@$(step) clippy cargo clippy --workspace --all-targets -- -D warnings
	@$(step) clippy-e2e cargo clippy -p groundcrew-e2e $(addprefix --test ,$(e2e_tests)) -- -D warnings
	@$(step) deny hack/deny licenses bans sources
	@$(step) shellcheck shellcheck hack/setup hack/step hack/test hack/deny hack/image hack/alerts-test e2e/src/kubelet/node.sh .ci/run

advisories: ## check dependencies for known vulnerabilities (needs a network)
	@$(step) setup hack/setup lint
	@$(step) advisories hack/deny advisories

demo: ## see a load balancer vanish and come back; KEEP=1 leaves it running
	@$(step) setup hack/setup ovn kube $(if $(KEEP),kubectl)
	@$(step) build cargo build --quiet -p groundcrew -p groundcrew-e2e
	@$(step) demo $${CARGO_TARGET_DIR:-target}/debug/demo $(if $(KEEP),--keep)

playground: ## the demo's world and a shell in it, for docs/tutorial.md
	@$(step) setup hack/setup ovn kube kubectl
	@$(step) build cargo build --quiet -p groundcrew -p groundcrew-e2e
	@$${CARGO_TARGET_DIR:-target}/debug/demo --playground

alerts-test: ## have promtool test the alerts, and check the metrics that each controller serves
	@$(step) setup hack/setup ovn net kube chart
	@$(step) build cargo build --quiet -p groundcrew
	@$(step) promtool cargo test -p groundcrew-e2e --test promtool

docs-test: ## run every command of the tutorial and of the guide for providers
	@$(step) setup hack/setup ovn kube kubectl
	@$(step) build cargo build --quiet -p groundcrew -p groundcrew-e2e
	@$(step) tutorial cargo test -p groundcrew-e2e --test tutorial

e2e: ## run the whole-system tests: real packets through a real OVN
	@$(step) setup hack/setup ovn kube
	@$(step) build cargo build --quiet -p groundcrew
	@$(step) e2e cargo test -p groundcrew-e2e

e2e-cloudsigma: ## run Services on CloudSigma: real packets, kube-proxy and fail-over, and a simulated account
	@$(step) setup hack/setup net kube proxy cloudsigma
	@$(step) build cargo build --quiet -p groundcrew
	@$(step) e2e-cloudsigma cargo test -p groundcrew-e2e --test cloudsigma -- --ignored --test-threads 1

e2e-deorbit: ## the end of a cluster, with every fault: kube-controller-manager, a model of OpenStack and all of its services
	@$(step) setup hack/setup kube openstack-full
	@$(step) compile cargo test -p groundcrew-orbit -p groundcrew-e2e --test deorbit --no-run
	@$(step) model cargo test -p groundcrew-orbit --test deorbit -- --include-ignored
	@$(step) e2e-deorbit cargo test -p groundcrew-e2e --test deorbit

e2e-openstack: ## run clients and controllers on Keystone, Neutron, Nova, Cinder and Octavia; ROUNDS=count of races, 50
	@$(step) setup hack/setup kube openstack-full
	@$(step) compile cargo test -p groundcrew-e2e --test openstack --no-run
	@$(step) e2e-openstack cargo test -p groundcrew-e2e --test openstack -- --test-threads 4
	@$(step) races env GROUNDCREW_ROUNDS=$(or $(ROUNDS),50) cargo test -p groundcrew-orbit --test it real::eight_writers -- --nocapture

chart: ## bring the generated files of the chart up to date: definitions, table of values, golden files
	@$(step) setup hack/setup chart
	@$(step) chart env GROUNDCREW_BLESS=1 cargo test --quiet -p groundcrew-e2e --test chart_files
	@$(step) golden env GROUNDCREW_BLESS=1 cargo test --quiet -p groundcrew-e2e --test chart golden

chart-test: ## lint, render, install and remove the chart with helm, and run every controller with the chart's own rights
	@$(step) setup hack/setup ovn net kube chart image
	@$(step) build cargo build --quiet -p groundcrew
	@$(step) chart cargo test -p groundcrew-e2e --test chart_files --test chart

image: ## build the container image, without a container engine: target/image/groundcrew.tar and its SBOM
	@$(step) setup hack/setup image
	@$(step) binary hack/image binary
	@$(step) image hack/image oci $${CARGO_TARGET_DIR:-target}/image/release/groundcrew $${CARGO_TARGET_DIR:-target}/image

e2e-kubelet: image ## install the chart where real kubelets run the image: all pods become ready on two nodes (root)
	@$(step) setup hack/setup ovn net kube chart kubelet
	@$(step) e2e-kubelet env GROUNDCREW_IMAGE=$${CARGO_TARGET_DIR:-$(CURDIR)/target}/image/groundcrew.tar cargo test -p groundcrew-e2e --test kubelet -- --nocapture

e2e-kube-ovn: ## beside a real kube-ovn-controller, $KUBE_OVN_CONTROLLER, with the definitions in $KUBE_OVN_CRDS
	@$(step) setup hack/setup ovn kube
	@$(step) build cargo build --quiet -p groundcrew
	@$(step) e2e cargo test -p groundcrew-e2e --test kube_ovn -- --nocapture

browser: ## look at the status page in a real browser; the pictures go to target/status-page
	@$(step) setup hack/setup ovn kube browser
	@$(step) browser cargo test -p groundcrew --test it -- --ignored --nocapture browser

bench: ## measure; SCENARIO=name and N=count choose what and how much
	@$(step) setup hack/setup ovn net kube proxy openstack
	@$(step) build cargo build --quiet --release -p groundcrew
	@$(step) harness cargo build --quiet --profile bench -p groundcrew-bench
	@$(step) bench $${CARGO_TARGET_DIR:-target}/release/groundcrew-bench $(SCENARIO) $(if $(N),--n $(N))

docs: ## build the book, target/book, and the API documentation, without broken links
	@$(step) setup hack/setup docs
	@$(step) book $$(hack/setup which mdbook) build docs
	@$(step) api env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

reference: ## write docs/reference anew from the code
	@$(step) reference env GROUNDCREW_BLESS=1 cargo test --quiet -p groundcrew --test docs reference

fmt: ## format the code
	@cargo fmt --all

clean: ## remove what was built (the tools in the user's cache stay)
	@cargo clean
