# Every target works on a clean machine with Go and make. Where redis-server is
# missing it is installed with apt-get (root), or the target says how to get it.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

GO        ?= go
TESTFLAGS ?=
# Of a package. A busy machine may need more: make test TEST_TIMEOUT=45m
TEST_TIMEOUT ?= 32m
FUZZTIME  ?= 3s
ROUNDS    ?= 3
BENCHFILE ?= docs/benchmarks.jsonl
ONLY      ?=
# The longest first, so that none of them is left to run alone at the end.
RACE_PKGS ?= ./orchestrator/... ./toolproxy/... ./reaper/... ./adapter/... ./internal/... ./cmd/picket/... ./cmd/picket-conformance/... ./cmd/scripted-worker/... . ./budget

.DEFAULT_GOAL := help
.PHONY: frozen help up build redis chromium screenshots picture quick test race real bench benchdoc recordlua keydoc importdoc policydoc a2adoc soak soakdoc agents conformance-mcp conformance-a2a-js fuzz lint fmt demo clean

help: ## show the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-19s %s\n", $$1, $$2}' Makefile

up: build redis ## build picket, get redis-server where possible, start picket
	@exec ./bin/picket up

build: ## build bin/picket and bin/picket-conformance
	@mkdir -p bin
	$(GO) build -o bin/ ./cmd/picket ./cmd/picket-conformance

redis: # never fails: without redis-server picket keeps its state in memory and reports it
	@if command -v redis-server >/dev/null; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing redis-server" >&2; \
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qqy --no-install-recommends redis-server; } >/dev/null </dev/null \
			|| echo "redis-server could not be installed: going on without it, state lives in memory only" >&2; \
	else \
		echo "redis-server is not installed, so state lives in memory only." >&2; \
		echo "To keep it: sudo apt-get install redis-server (Debian, Ubuntu) or brew install redis (macOS)." >&2; \
	fi

chromium: # never fails: without a browser the tests of the console in one are skipped, and report it
	@if command -v chromium chromium-browser google-chrome google-chrome-stable >/dev/null; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing chromium" >&2; \
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qqy --no-install-recommends chromium; } >/dev/null </dev/null \
			|| echo "chromium could not be installed: the console is not tested in a browser" >&2; \
	else \
		echo "there is no Chromium or Chrome on PATH, so the console is not tested in a browser." >&2; \
		echo "To test it: sudo apt-get install chromium (Debian), or install Google Chrome." >&2; \
	fi

# Without the proof suites: a change in the engine links a binary for each of them,
# which takes as long as all other packages together, and their short counts prove little.
quick: ## the inner loop: short tests in memory and on the virtual clock, in less than a minute
	@GOGC=400 $(GO) test -short -timeout 5m $(TESTFLAGS) $$($(GO) list ./... | grep -v /orchestrator/proof/)

# Four packages at once. The longest mostly wait. They are named first, so that none of them
# is left to run alone at the end. The memory store makes much garbage, so the collector runs
# less often. "make lint" vets the tests.
test: redis chromium ## all tests, in memory and on a real Redis
	@echo "all tests: about 16 minutes on two cores" >&2
	GOGC=400 $(GO) test -vet=off -p 4 -timeout $(TEST_TIMEOUT) $(TESTFLAGS) ./adapter ./cmd/picket ./internal/e2e \
		./orchestrator ./orchestrator/proof/storeloss ./orchestrator/... ./...
	@cd cmd/picketbench && GOGC=400 $(GO) test -timeout 2m $(TESTFLAGS) ./...

race: redis ## all tests under the race detector (needs a C compiler)
	GOGC=400 GORACE="atexit_sleep_ms=0" CGO_ENABLED=1 $(GO) test -race -p 3 -timeout 40m $(TESTFLAGS) $(RACE_PKGS)

real: redis ## only the packages with suites on a real Redis, without their in-memory half
	@command -v redis-server >/dev/null || { echo "no redis-server on PATH" >&2; exit 1; }
	$(GO) test -count=1 -timeout 12m -skip '/(Virtual|Memory)$$' $(TESTFLAGS) ./orchestrator/proof/... ./orchestrator \
		$$(grep -rlE 'rig\.Real|exec\.LookPath\("redis-server"\)' --include='*_test.go' --exclude-dir=picketbench . | xargs -n1 dirname | sort -u)

SHOTS ?=
screenshots: redis chromium ## pictures of every page of the console, into SHOTS (default a new temporary folder)
	@command -v redis-server >/dev/null || { echo "no redis-server on PATH" >&2; exit 1; }; \
	dir="$(abspath $(SHOTS))"; [ -n "$$dir" ] || dir="$$(mktemp -d -t picket-screenshots-XXXXXX)"; mkdir -p "$$dir"; \
	PICKET_SCREENSHOTS="$$dir" $(GO) test -count=1 -timeout 9m -run '^TestScreenshots$$' -v ./internal/e2e; \
	echo "the pictures are in $$dir"

picture: redis chromium ## the picture of the console in README.md
	@mkdir -p docs/images
	PICKET_README_PICTURE="$(CURDIR)/docs/images/console.png" $(GO) test -count=1 -timeout 9m -run '^TestReadmePicture$$' ./internal/e2e

SLICES  ?= 1
SOAKPKG ?= ./...
soak: redis ## all tests, the random ones with many times the rounds; no limit in time (SLICES=8: an eighth of the rounds)
	PICKET_SOAK=1/$(SLICES) PICKET_SOAK_LOG=$(CURDIR)/docs/soak.jsonl \
		$(GO) test -count=1 -p 1 -timeout 0 -v $(TESTFLAGS) $(SOAKPKG)

soakdoc: # the table of soak runs in docs/proof.md from docs/soak.jsonl
	$(GO) test ./internal/rig -run TestProofShowsTheSoakRuns -update

# The versions that were run; their output and their flags change between them.
AGENTS         ?= claude codex gemini opencode
AGENT_claude   ?= @anthropic-ai/claude-code@2.1.330
AGENT_codex    ?= @openai/codex@0.169.0
AGENT_gemini   ?= @google/gemini-cli@0.61.0
AGENT_opencode ?= opencode-ai@1.18.33

agents: redis ## real coding agents, from npm into a temporary folder, against a scripted model (AGENTS="claude codex")
	@command -v npm >/dev/null || { echo "agents: skipped, npm is not on PATH" >&2; exit 0; }; \
	npm ping --loglevel=silent >/dev/null 2>&1 || { echo "agents: skipped, the package registry cannot be reached" >&2; exit 0; }; \
	dir="$$(mktemp -d)"; trap 'rm -rf "$$dir"' EXIT; \
	echo "agents: installing $(AGENTS)" >&2; \
	npm install --prefix "$$dir" --no-audit --no-fund --loglevel=error $(foreach a,$(AGENTS),$(AGENT_$(a))) >&2; \
	PICKET_AGENT_CLIS="$$dir/node_modules/.bin" $(GO) test -count=1 -timeout 9m -run '^Test(CodingAgents|TheReportIsPinned)' -v ./internal/e2e

# The suite needs a node of 22 or later, which npm has too.
MCP_SUITE ?= @modelcontextprotocol/conformance@0.1.16 node@26.10.0

conformance-mcp: ## the public MCP suite against /mcp and through the gateway, from npm into a temporary folder
	@command -v npm >/dev/null || { echo "conformance-mcp: skipped, npm is not on PATH" >&2; exit 0; }; \
	npm ping --loglevel=silent >/dev/null 2>&1 || { echo "conformance-mcp: skipped, the package registry cannot be reached" >&2; exit 0; }; \
	dir="$$(mktemp -d)"; trap 'rm -rf "$$dir"' EXIT; \
	npm install --prefix "$$dir" --no-audit --no-fund --loglevel=error $(MCP_SUITE) >&2; \
	PICKET_MCP_SUITE="$$dir" $(GO) test -count=1 -timeout 9m -run '^TestMCPConformance' -v ./toolproxy

A2A_JS ?= @a2a-js/sdk@1.3.0 jose@6.2.18

conformance-a2a-js: redis ## an A2A endpoint with the official SDK for JavaScript, from npm into a temporary folder
	@command -v npm >/dev/null || { echo "conformance-a2a-js: skipped, npm is not on PATH" >&2; exit 0; }; \
	npm ping --loglevel=silent >/dev/null 2>&1 || { echo "conformance-a2a-js: skipped, the package registry cannot be reached" >&2; exit 0; }; \
	dir="$$(mktemp -d)"; trap 'rm -rf "$$dir"' EXIT; \
	npm install --prefix "$$dir" --no-audit --no-fund --loglevel=error $(A2A_JS) >&2; \
	PICKET_A2A_JS="$$dir" $(GO) test -count=1 -timeout 5m -run '^TestA2AJavaScript$$' -v ./internal/e2e

UPDATE ?=
frozen: redis ## compare everything others can observe with its golden files (UPDATE=1 writes them)
	$(GO) test -count=1 ./internal/frozen $(if $(UPDATE),-update)

# A target that ends while it still reads its corpus fails without a finding. What is found is stored, so
# the second try finds it again.
fuzz: ## every fuzz target for FUZZTIME (default 3s)
	@$(GO) test -list '^Fuzz' ./... | awk '/^Fuzz/{n[++k]=$$1} /^ok/{for(i=1;i<=k;i++)print $$2, n[i]; k=0}' \
	| while read -r package target; do \
		echo "fuzz $$package $$target"; \
		fuzz="$(GO) test -run ^$$ -fuzz ^$$target\$$ -fuzztime $(FUZZTIME) $$package"; \
		$$fuzz </dev/null || { echo "fuzz $$package $$target again"; $$fuzz </dev/null; } || exit 1; \
	done

lint: ## gofmt, vet, staticcheck; builds for macOS, the adapter also for Windows
	@bad="$$(gofmt -l .)"; [ -z "$$bad" ] || { echo "not gofmt-ed (make fmt fixes it):"; echo "$$bad"; exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	cd cmd/picketbench && $(GO) vet ./...
	GOOS=darwin $(GO) build ./...
	GOOS=windows $(GO) build ./adapter/...

fmt: ## gofmt every file
	gofmt -w .

demo: build redis ## the whole story in some ten seconds: work, crash, zombie, budget, hand-off, notice, wake, A2A client, review, console
	@exec ./bin/picket demo all

bench: redis ## measure against peers, all scenarios or ONLY=life,depth; then docs/benchmarks.md
	@command -v redis-server >/dev/null || { echo "no redis-server on PATH" >&2; exit 1; }
	@mkdir -p bin
	cd cmd/picketbench && $(GO) build -o ../../bin/picketbench .
	./bin/picketbench -rounds $(ROUNDS) -only "$(ONLY)" -o $(BENCHFILE)
	@$(MAKE) benchdoc

benchdoc: # the table from the figures
	cd cmd/picketbench && $(GO) run . -table ../../$(BENCHFILE) > ../../docs/benchmarks.md

recordlua: # the part of the scripts that packs records, from orchestrator/lua/records.go
	UPDATE=1 $(GO) test ./orchestrator/lua -count=1 -run TestRecordsPartIsMadeFromTheList

keydoc: # the table of Redis keys in docs/architecture.md from orchestrator/lua/keys.txt
	$(GO) test ./orchestrator/store -run TestTheKeyTableIsTheList -update

importdoc: # the import table in docs/architecture.md from internal/rig/imports_test.go
	$(GO) test ./internal/rig -run TestArchitectureShowsTheImportTable -update

policydoc: # the table of forbidden fields in docs/operations/wake-policies.md from orchestrator/heartbeat/authority.go
	$(GO) test ./orchestrator/heartbeat -run TestTheDocumentShowsWhatIsForbidden -update

a2adoc: # the table of messages in docs/reference/a2a.md from internal/scriptedworker/script.go
	$(GO) test ./internal/scriptedworker -run TestTheDocumentShowsTheScript -update

clean: ## remove what was built
	rm -rf bin out
