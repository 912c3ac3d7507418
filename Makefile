# Every target sets up what it needs, and says nothing where it is there already.
SHELL := /bin/bash
.DEFAULT_GOAL := help
TARGET := $(or $(CARGO_TARGET_DIR),target)
CARGO_DENY := 0.20.2

.PHONY: help demo build test report-check bench bench-short elastic lint deny fmt setup setup-build setup-lint setup-test setup-elastic

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: build ## hold 100,000 connections on the node beside it; leaves report.html
	$(TARGET)/release/plimsoll hold tcp://127.0.0.1:7000 --serve -c 100k --heartbeat 10s --html report.html

build: setup-build ## build the binaries, with optimization
	cargo build --release --workspace --bins

# Most tests wait most of the time, so four run on any machine; those that judge rates or memory wait to be alone.
# With optimization: the tests hold thousands of connections and judge rates, and the build is shared with the rest.
test: setup-test ## run all tests, and look at the report in a browser
	RUST_TEST_THREADS=4 cargo test --release --workspace
	$(MAKE) --no-print-directory report-check

report-check: build setup-test
	scripts/check-report.sh --self-test
	$(TARGET)/release/plimsoll hold ws://127.0.0.1:7080/ws --serve -c 2k --stages 4 --hold 2s --heartbeat 1s \
		--quiet --html $(TARGET)/report-check.html
	scripts/check-report.sh $(TARGET)/report-check.html
	$(TARGET)/release/plimsoll storm ws://127.0.0.1:7080/ws --serve -c 2k --hold 1s \
		--quiet --html $(TARGET)/storm-check.html
	scripts/check-report.sh $(TARGET)/storm-check.html verdict storm limits latency time where
	$(TARGET)/release/plimsoll talk grpc://127.0.0.1:7050 --serve -c 1k --messages 5 --rate 2/s \
		--quiet --html $(TARGET)/talk-check.html
	scripts/check-report.sh $(TARGET)/talk-check.html verdict talk limits cost latency time where
	$(TARGET)/release/plimsoll sweep tcp://127.0.0.1:7000 ws://127.0.0.1:7080/ws --serve -c 1..64 --warm-up 200ms \
		--measure 500ms --quiet --html $(TARGET)/sweep-check.html
	scripts/check-report.sh $(TARGET)/sweep-check.html verdict sweep limits cost latency time where
	targets/redis.sh start 16399 && \
		{ $(TARGET)/release/plimsoll churn redis://127.0.0.1:16399 --min-pool 0,5 --burst 10 --idle 500ms --bursts 2 \
			--quiet --html $(TARGET)/churn-check.html; code=$$?; targets/redis.sh stop 16399; exit $$code; }
	scripts/check-report.sh $(TARGET)/churn-check.html verdict churn advice price limits where

bench: build ## measure against the floor; prints the table of the README
	scripts/bench.py

bench-short: build
	scripts/bench.py --short

elastic: build setup-elastic ## sweep over an elastic cluster, direct and pooled; leaves elastic-*.html
	scripts/elastic.sh

lint: setup-lint deny ## clippy, formatting, and who may depend on what
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

deny: setup-lint
	cargo deny --log-level error check bans licenses sources

fmt: setup-lint-rust ## format everything
	cargo fmt --all

setup: setup-build setup-test setup-lint ## install everything that any target needs

setup-build:
	@command -v cargo >/dev/null || { echo "cargo is missing: install Rust 1.95 or later, for example with rustup" >&2; exit 1; }
	@scripts/need.sh cc build-essential

setup-test: setup-build
	@scripts/need.sh chromium chromium python3 python3 nginx nginx-light redis-server redis-server haproxy haproxy \
		redis-cli redis-tools unshare util-linux ip iproute2 nft nftables javac default-jdk-headless \
		prometheus-node-exporter prometheus-node-exporter \
		nats-server nats-server mosquitto mosquitto
	@targets/asyncio-ws.sh install
	@targets/postgres.sh install
	@targets/pgbouncer.sh install
	@targets/elastic-cluster.sh install
	@targets/ferretdb.sh install
	@targets/ignite.sh install
	@targets/grpc-go.sh install

.PHONY: setup-lint-rust
setup-lint-rust:
	@cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt
	@cargo clippy --version >/dev/null 2>&1 || rustup component add clippy

setup-elastic:
	@scripts/need.sh python3 python3
	@targets/elastic-cluster.sh install

setup-lint: setup-lint-rust setup-build
	@cargo deny --version >/dev/null 2>&1 || cargo install --locked --quiet --debug cargo-deny --version $(CARGO_DENY)
