# Onceward. `make help` lists the targets.
SHELL := bash
.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z% -]+:.*## / { split($$1, name, " "); printf "  make %-14s %s\n", name[1], $$2 }' $(MAKEFILE_LIST)

.PHONY: check
check: ## the inner loop, without servers: formatting, lint and vet, prose, workflows, commits, unit tests (cached)
	@scripts/check.sh

.PHONY: test
test: ## every test of every module on real servers: installs, starts and stops them; skips nothing
	@scripts/test.sh full

.PHONY: test-redis test-kafka test-sql test-http test-faults test-rest
test-redis test-kafka test-sql test-http test-faults test-rest: test-%: ## a shard of make test, on real servers (also -kafka, -sql, -http, -faults, -rest)
	@scripts/test.sh full $*

.PHONY: test-unit
test-unit: ## every test that needs no server
	@scripts/test.sh unit

.PHONY: test-long
test-long: ## as test, with the long tests too (build tag long); hours
	@scripts/test.sh long

.PHONY: test-newest
test-newest: ## make test-redis on Redis 8.6 and on Valkey 9.1, which it fetches; part of test-long; a quarter of an hour
	@scripts/test-newest.sh

.PHONY: test-mysql
test-mysql: ## the tests of MariaDB on a MySQL from Debian unstable, which it fetches; by name only, no part of CI; six minutes
	@scripts/test-mysql.sh

.PHONY: torture-owned
torture-owned: ## a million keys over owned partitions, through kills and handovers, into bench/results/torture.json and docs/evidence/faults.md; 25 min
	@ONCEWARD_SERVERS=1 go -C internal/integration test -tags long -count=1 -timeout 60m -v -run 'Torture' ./owned && $(MAKE) --no-print-directory bench-table

.PHONY: torture
torture: ## kill, stop and starve everything, and judge what became of every message (PROFILE=smoke, ci, full or soak)
	@scripts/torture.sh $(or $(PROFILE),smoke)

.PHONY: torture-others
torture-others: ## what else people use against duplicates through the same faults, into bench/results/torture-others.json and docs/evidence/others.md; minutes
	@scripts/servers.sh up redis postgres && eval "$$(scripts/servers.sh env)" && ONCEWARD_SERVERS=1 ONCEWARD_REQUIRE_SERVERS=1 \
		ONCEWARD_OTHERS_TABLE=$(CURDIR)/bench/results/torture-others.json go -C internal/integration/others test -count=1 -timeout 60m -parallel 4 -v -run 'Others|Page' .

.PHONY: model
model: ## have spin check the model of one key's life, and find the faults planted in it; installs spin; minutes
	@scripts/model.sh check

.PHONY: alerts
alerts: ## have Prometheus's promtool see each alert rule fire, and stay silent; installs it
	@scripts/servers.sh install && ONCEWARD_REQUIRE_SERVERS=1 go -C contrib/telemetry test -count=1 -timeout 2m -v -run 'Alerts|Troubles' .

.PHONY: console-shots
console-shots: ## the pages of the console in headless Chromium, which is installed if missing, and their pictures into docs/console; seven minutes
	@scripts/browser.sh shots

.PHONY: dashboard-shot
dashboard-shot: ## the Grafana dashboard with data from a real Prometheus, drawn in headless Chromium, into docs/dashboard; a quarter of an hour
	@scripts/dashboard-shot.sh shot
	@scripts/dashboard-shot.sh demo

.PHONY: fuzz
fuzz: ## give every fuzz target inputs of its own making, in turns (FUZZTIME=30s, FUZZ=part of a name)
	@scripts/fuzz.sh $(FUZZ)

.PHONY: mutants-apply
mutants-apply: ## whether the listed ways to break the code still apply to it
	@scripts/mutants.sh -apply

.PHONY: mutants
mutants: ## break the code in each listed way and see the tests turn red
	@scripts/mutants.sh

.PHONY: lint
lint: ## run the linter pinned in internal/tools/golangci-lint over every module
	@scripts/lint.sh

.PHONY: release-check
release-check: ## every module alone, at a version, from a proxy of files, and the command installed from it; says the order of the tags; minutes
	@scripts/release.sh check

.PHONY: release-binaries
release-binaries: ## the command for each system into dist/, with checksums, licences and a bill of materials; minutes
	@scripts/release.sh binaries

.PHONY: vulncheck
vulncheck: ## known vulnerabilities (govulncheck, needs vuln.go.dev or GOVULNDB) and patch releases of dependencies; says loudly what it could not look at
	@scripts/vulncheck.sh

.PHONY: fmt
fmt: ## format all Go files
	@gofmt -w .

.PHONY: prose
prose: ## check the English of Markdown, Go comments and texts in code with vale; PROSE=-update or paths
	@scripts/prose.sh $(PROSE)

.PHONY: arch
arch: ## check the import table, the core's size and documentation, and names
	@go test -count=1 -v -run 'AllowedNames|CoreStaysSmall|DeniedNames|Documented|Imports|NestedModules|NoSleep' ./internal/arch/

.PHONY: ci
ci: ## what CI runs: all of check but unit tests and commits, then test
	@.ci/run

.PHONY: demo
demo: ## duplicates and kills go in, effects are counted and judged (needs only Go)
	@go run ./cmd/onceward demo

.PHONY: bench
bench: ## run the benchmarks of every module
	@. scripts/lib/phase.sh && for dir in $$(modules); do go -C "$$dir" test -run '^$$' -bench . -benchmem ./... || failed=1; done; [ -z "$$failed" ]

.PHONY: bench-redis
bench-redis: ## the Redis path next to its limits and peers, into bench/results and docs/evidence/benchmarks.md (BENCHFLAGS=-quick)
	@go -C bench run . redis -out results/redis.json $(BENCHFLAGS) && $(MAKE) --no-print-directory bench-table

.PHONY: bench-kafka
bench-kafka: ## the Kafka adapter next to what binds it, into bench/results and docs/evidence/benchmarks.md (BENCHFLAGS=-quick)
	@go -C bench run . kafka -out results/kafka.json $(BENCHFLAGS) && $(MAKE) --no-print-directory bench-table

.PHONY: bench-outbox
bench-outbox: ## the outbox's relay on PostgreSQL, into bench/results and docs/evidence/benchmarks.md (BENCHFLAGS=-quick)
	@go -C bench run . outbox -out results/outbox.json $(BENCHFLAGS) && $(MAKE) --no-print-directory bench-table

.PHONY: bench-outbox-topics
bench-outbox-topics: ## how long healthy messages take behind 5, 50 and 100,000 of a topic that fails, next to alone, for docs/evidence/benchmarks.md; two minutes
	@scripts/servers.sh up postgres kafka1 && eval "$$(scripts/servers.sh env)" && ONCEWARD_SERVERS=1 ONCEWARD_REQUIRE_SERVERS=1 \
		go -C internal/integration test -tags long -count=1 -timeout 30m -v -run TestFailingTopicAheadFigures ./outbox

.PHONY: bench-sql
bench-sql: ## records and effects in PostgreSQL, MariaDB and SQLite, into bench/results and docs/evidence/benchmarks.md (BENCHFLAGS=-quick)
	@go -C bench run . sql -out results/sql.json $(BENCHFLAGS) && $(MAKE) --no-print-directory bench-table

.PHONY: bench-bloom
bench-bloom: ## the Bloom filter and what is built on it next to what people use, into bench/results and docs/evidence/benchmarks.md (BENCHFLAGS=-quick)
	@go -C bench run . bloom -out results/bloom.json $(BENCHFLAGS) && $(MAKE) --no-print-directory bench-table

.PHONY: bench-http
bench-http: ## requests through httpadapter next to their limits and peers, and what retries cost a server that is down, into bench/results and docs/evidence/benchmarks.md (BENCHFLAGS=-quick)
	@go -C bench run . http -out results/http.json $(BENCHFLAGS) && go -C bench run . retry -out results/retry.json $(filter -quick,$(BENCHFLAGS)) && $(MAKE) --no-print-directory bench-table

.PHONY: bench-table
bench-table: ## put the tables of bench/results into docs/evidence and README.md
	@go -C bench run . table -write

.PHONY: servers-install
servers-install: ## find or install Redis, PostgreSQL, MariaDB, Java and Apache Kafka
	@scripts/servers.sh install

.PHONY: servers-up
servers-up: ## start the servers and print the exports that tests read
	@scripts/servers.sh up && scripts/servers.sh env

.PHONY: servers-down
servers-down: ## stop the servers that servers-up started, and remove their data
	@scripts/servers.sh down
