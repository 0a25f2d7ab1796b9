# Two commands do everything on a fresh machine: `make run` and `make test`.
# The work is in scripts/; both say what they do and never ask.

.DEFAULT_GOAL := help
.PHONY: help run test bench install fmt tidy doc loom miri soak abuse fuzz

# More for `skopos up`, as in: make run ARGS="--for 30s"
ARGS ?=
# Which benchmarks, as in: make bench BENCH=score
BENCH ?=

help: ## list these commands
	@echo 'usage: make COMMAND'
	@sed -n 's/^\([a-z]*\):.*## /  \1\t/p' $(MAKEFILE_LIST) | expand -t 12

run: ## install what is missing, build, and watch this machine until Ctrl-C
	@exec scripts/run $(ARGS)

test: ## install what is missing and pass all tests
	@exec scripts/test

bench: ## install the peers and measure beside them; BENCH=score for one alone
	@exec scripts/bench $(BENCH)

install: ## put skopos and skopos-agent on your PATH
	cargo install --locked --path crates/skopos

fmt: ## format all Rust
	cargo fmt --all

tidy: ## check what no compiler checks
	@exec scripts/test tidy

doc: ## build the API documentation, warnings are errors
	@exec scripts/test doc

loom: ## try every interleaving of the lock-free protocols
	@exec scripts/test loom

miri: ## look for undefined behaviour in shared memory
	@exec scripts/test miri

soak: ## lose power, flip bits and kill a hub for an hour (SOAK_SECONDS), and run shared memory as aarch64
	@exec scripts/test soak weak

abuse: ## attack a hub in 39 ways, and write docs/results/abuse.md
	@exec scripts/test abuse

fuzz: ## fuzz each parser of outside bytes; FUZZ_SECONDS=60 each
	@exec scripts/test fuzz
