# Every target sees to what it needs: there is nothing to install by hand except Rust (https://rustup.rs).
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: advisories bench build clean demo docs e2e fmt help lint soak test

step := hack/step

help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## compile everything, unoptimised
	@$(step) setup hack/setup base
	@$(step) build cargo build --workspace

test: ## run every test, against a real kube-apiserver, OVN, Keystone and Neutron
	@$(step) setup hack/setup ovn net kube openstack
	@$(step) compile cargo test --workspace --no-run
	@$(step) test cargo test --workspace

soak: ## fifty random stops of the leader; ROUNDS=count for more
	@$(step) setup hack/setup ovn kube
	@$(step) soak env GROUNDCREW_ROUNDS=$(or $(ROUNDS),50) cargo test -p groundcrew --test it random_stops -- --nocapture

lint: ## check formatting, clippy, licences and sources of dependencies, and shell scripts
	@$(step) setup hack/setup lint
	@$(step) lockfile cargo metadata --locked --format-version 1 --quiet >/dev/null
	@$(step) fmt cargo fmt --all --check
	@$(step) clippy cargo clippy --workspace --all-targets -- -D warnings
	@$(step) deny hack/deny licenses bans sources
	@$(step) shellcheck shellcheck hack/setup hack/step hack/deny .ci/run

advisories: ## check dependencies for known vulnerabilities (needs a network)
	@$(step) setup hack/setup lint
	@$(step) advisories hack/deny advisories

demo: ## see a load balancer vanish and come back; KEEP=1 leaves it running
	@$(step) setup hack/setup ovn kube $(if $(KEEP),kubectl)
	@$(step) build cargo build --quiet -p groundcrew -p groundcrew-e2e
	@$(step) demo $${CARGO_TARGET_DIR:-target}/debug/demo $(if $(KEEP),--keep)

e2e: ## run the whole-system tests: real packets through a real OVN
	@$(step) setup hack/setup ovn kube
	@$(step) build cargo build --quiet -p groundcrew
	@$(step) e2e cargo test -p groundcrew-e2e

bench: ## measure; SCENARIO=name and N=count choose what and how much
	@$(step) setup hack/setup ovn kube
	@$(step) build cargo build --quiet --profile bench -p groundcrew -p groundcrew-bench
	@$(step) bench $${CARGO_TARGET_DIR:-target}/release/groundcrew-bench $(SCENARIO) $(if $(N),--n $(N))

docs: ## build the API documentation, without broken links
	@$(step) docs env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

fmt: ## format the code
	@cargo fmt --all

clean: ## remove what was built (the tools in the user's cache stay)
	@cargo clean
