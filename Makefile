# make run      build Spool and show a run that survives a cut connection
# make install  install Spool with completions and man pages below PREFIX
# make uninstall  remove what make install installed
# make console  work on the web console: serve it from its sources, with live reload
# make cluster  serve three nodes of a cluster on this machine
# make record   draw the session in the README
# make test     install the tests' requirements and run all tests
# make bench    measure Spool beside the codex exec-server and other servers
# make comparison  measure Spool beside other servers and write docs/comparison.md
# make packages  build the packages of the SDKs into dist/
# make lint     run the linters and look for known vulnerabilities
# make fuzz     run every fuzz target for FUZZTIME
# make torture  cut 10,000 connections and kill 200 servers, then check for loss;
#               run 10,000 cells in 1,000 kernels, then check for leftovers;
#               kill 300 migrations, compressions and prunes of state directories;
#               cut each kind of stream of the HTTP API 2,000 times, and make and
#               cut 10,000 connections; wait for a command of 10 minutes with calls of
#               MCP of 50 seconds
# make torture-cluster  kill, stop and cut off nodes of a cluster and fill their disks,
#               FAULTS times, then check for starts that were lost, doubled or made up;
#               the same while the clock of this machine jumps by minutes; upgrade all
#               nodes of a cluster under load, three times, from the program FROM if it
#               is set; restore the disks of
#               all servers of its store to older copies; then claim CLAIMS ids through
#               six nodes while the servers of their store are killed and stopped, which
#               takes about ten minutes for 100,000
# make simulate  run NODES simulated nodes for LENGTH with a million runs a day, faults
#               and an upgrade, then check the same

GO ?= go
FUZZTIME ?= 20s
SEED ?= 1
FAULTS ?= 100
CLAIMS ?= 100000
NODES ?= 1000
LENGTH ?= 10m
PREFIX ?= /usr/local
DESTDIR ?=
# The binary to install. Only the default one is built.
BUILT ?= bin/spool
share = $(DESTDIR)$(PREFIX)/share

.PHONY: build run install uninstall console cluster record packages test vet bench comparison lint fuzz torture torture-cluster simulate deps clean

build:
	@CGO_ENABLED=0 $(GO) build -trimpath -o bin/spool ./cmd/spool

run: build
	@bin/spool demo

install: $(if $(filter bin/spool,$(BUILT)),build)
	install -d $(DESTDIR)$(PREFIX)/bin $(share)/man/man1 $(share)/bash-completion/completions \
		$(share)/zsh/site-functions $(share)/fish/vendor_completions.d
	install -m 755 $(BUILT) $(DESTDIR)$(PREFIX)/bin/spool
	$(BUILT) man $(share)/man/man1
	$(BUILT) completion bash > $(share)/bash-completion/completions/spool
	$(BUILT) completion zsh > $(share)/zsh/site-functions/_spool
	$(BUILT) completion fish > $(share)/fish/vendor_completions.d/spool.fish

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/spool $(share)/man/man1/spool.1 $(share)/man/man1/spool-*.1 \
		$(share)/bash-completion/completions/spool $(share)/zsh/site-functions/_spool \
		$(share)/fish/vendor_completions.d/spool.fish

# The server has its state in .cache, so that trying things out touches no real runs.
console: build
	@cd internal/web && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@bin/spool serve --state .cache/console --listen 127.0.0.1:7768 & server=$$!; \
		trap "kill $$server" EXIT INT TERM; cd internal/web && node dev.mjs http://127.0.0.1:7768 7767

cluster: build
	@scripts/cluster bin/spool .cache/cluster

record: build
	scripts/record bin/spool docs/session.svg

packages:
	@scripts/packages dist

deps:
	@scripts/deps

# Without cgo, as the program is built: there is nothing to compile twice. What is
# compiled for macOS is not run, so it is not optimized, which takes a third less.
vet:
	@test -z "$$(gofmt -l .)" || { echo "gofmt needed:"; gofmt -l .; exit 1; }
	@CGO_ENABLED=0 $(GO) vet ./...
	@GOOS=darwin $(GO) vet -gcflags='all=-N -l' ./...

# By default the race detector waits for a second at the end of every process. Four
# packages at a time, because many tests wait for other processes. The timeout ends a
# hang; a machine that gets a fifth of its processors needs most of it. The packages
# that wait longest begin first, so that others fill their pauses.
longest := ./internal/sdk ./internal/web ./internal/cli ./cmd/spool ./internal/wire/...
test: deps vet
	GORACE=atexit_sleep_ms=0 $(GO) test -race -vet=off -p 4 -timeout 40m $(longest) ./...
	CGO_ENABLED=0 $(GO) test -vet=off -timeout 40m -run 'InProcess|/in_process' ./internal/engine/sandbox ./internal/engine/sandbox/wasipy

bench: build
	@scripts/deps bench
	$(GO) run ./bench -spool bin/spool -json bench/results/latest.json

comparison: build
	@scripts/deps bench
	$(GO) run ./bench -spool bin/spool -only peers -json bench/results/comparison.json -comparison docs/comparison.md

lint:
	$(GO) tool -modfile=tools/go.mod golangci-lint run
	@scripts/vulncheck

fuzz:
	@scripts/fuzz $(FUZZTIME)

torture: build
	bin/spool torture --seed $(SEED) --disconnects 10000 --kills 200 --duration 20m
	bin/spool torture --seed $(SEED) --kernels 1000 --cells 10000
	bin/spool torture --seed $(SEED) --upkeep 300
	$(GO) test -count=1 -run TestExactlyOnceUnderCuts ./internal/wire/httpapi -cuts 2000
	$(GO) test -count=1 -run TestCutConnectionsLeaveNothing ./internal/wire/httpapi -connects 10000
	$(GO) test -count=1 -timeout 20m -run TestLongCommand ./internal/wire/mcpapi -long 10m -calls 50s
	$(GO) test -count=1 -timeout 1h -run TestJourneys ./internal/web -soak 20m
	$(GO) test -count=1 -tags lab -run TestLab ./internal/sdk

torture-cluster:
	$(GO) test -count=1 -v -timeout 60m -run 'TestTorture|TestHistory|TestRollingUpgrade|TestThreeStoresGoBack' ./internal/cluster -faults $(FAULTS) -seed $(SEED) -upgrades 3 $(if $(FROM),-upgrade-from $(abspath $(FROM))) -three-stores -clock
	$(GO) test -count=1 -v -timeout 60m -run 'TestClaims$$' ./internal/cluster -claims $(CLAIMS) -seed $(SEED)

simulate:
	$(GO) test -count=1 -v -timeout 24h -run TestSimulation ./internal/cluster -sim-nodes $(NODES) -sim-length $(LENGTH) -sim-seed $(SEED) -sim-daily 1000000 -sim-mean 5m -sim-fault 10s

clean:
	rm -rf bin bench/results
