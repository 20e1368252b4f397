# make run    build everything and watch a run survive a cut connection
# make test   install what the tests need and run them all
# make bench  measure Spool beside the codex exec-server
# make lint   run the linters
# make fuzz   run every fuzz target for a while

GO ?= go
FUZZTIME ?= 20s

.PHONY: build run test vet bench lint fuzz deps clean

build:
	@$(GO) build -trimpath -o bin/spool ./cmd/spool

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

bench: deps build
	$(GO) run ./bench -spool bin/spool -json bench/results/latest.json

lint:
	$(GO) tool -modfile=tools/go.mod golangci-lint run

fuzz:
	@scripts/fuzz $(FUZZTIME)

clean:
	rm -rf bin bench/results
