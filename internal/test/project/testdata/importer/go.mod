module example.com/importer

go 1.26.0

require github.com/go-vercel/sandbox v0.0.0
