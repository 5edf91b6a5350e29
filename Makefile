# The same commands that .ci/run uses, one by one.
.PHONY: test race lint lint-quick conformance bench ci slow hogs

test:
	go test ./...

race:
	go test -race -short ./...

lint:
	cd tools && go build -o ../bin/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	bin/golangci-lint run ./...

lint-quick:
	cd tools/lint && go build -trimpath -buildvcs=false -o ../../bin/lint .
	go vet -vettool=$(CURDIR)/bin/lint ./...

conformance:
	go test -count=1 -v -run Conformance ./internal/test/conformance

bench:
	go test -run '^$$' -bench . -benchmem ./...

ci:
	bash .ci/run

slow:
	bash .ci/slow

hogs:
	bash .ci/hogs
