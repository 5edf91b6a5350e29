module github.com/go-vercel/sandbox/tools/mutation

go 1.26.0
