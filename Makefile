# .ci/run and .ci/slow run the same commands.
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
