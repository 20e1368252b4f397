# make run      build Spool and show a run that survives a cut connection
# make test     install the tests' requirements and run all tests
# make bench    measure Spool beside the codex exec-server
# make lint     run the linters and look for known vulnerabilities
# make fuzz     run every fuzz target for FUZZTIME
# make torture  cut 10,000 connections and kill 200 servers, then check for loss;
#               run 10,000 cells in 1,000 kernels, then check for leftovers

GO ?= go
FUZZTIME ?= 20s
SEED ?= 1

.PHONY: build run test vet bench lint fuzz torture deps clean

build:
	@CGO_ENABLED=0 $(GO) build -trimpath -o bin/spool ./cmd/spool

run: build
	@bin/spool demo

deps:
	@scripts/deps

vet:
	@test -z "$$(gofmt -l .)" || { echo "gofmt needed:"; gofmt -l .; exit 1; }
	@$(GO) vet ./...
	@GOOS=darwin $(GO) vet ./...

test: deps vet
	$(GO) test -race -timeout 12m ./...
	$(GO) test -timeout 12m -run 'InProcess|/in_process' ./internal/engine/sandbox ./internal/engine/sandbox/wasipy

bench: deps build
	$(GO) run ./bench -spool bin/spool -json bench/results/latest.json

lint:
	$(GO) tool -modfile=tools/go.mod golangci-lint run
	@scripts/vulncheck

fuzz:
	@scripts/fuzz $(FUZZTIME)

torture: build
	bin/spool torture --seed $(SEED) --disconnects 10000 --kills 200 --duration 20m
	bin/spool torture --seed $(SEED) --kernels 1000 --cells 10000

clean:
	rm -rf bin bench/results
