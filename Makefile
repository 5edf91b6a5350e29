# Shortcuts for frequent commands. CI runs .ci/run and .ci/slow.
.PHONY: test race lint ci slow

test:
	go test ./...

race:
	go test -race ./...

lint:
	go build -C tools/lint -trimpath -buildvcs=false -o $(CURDIR)/bin/lint . && go vet -vettool=$(CURDIR)/bin/lint ./...

ci:
	bash .ci/run

slow:
	bash .ci/slow
