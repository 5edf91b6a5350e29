package mirror_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/go-vercel/sandbox/cmd/sandbox/mirror"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// A folder is copied to a sandbox, and what a program makes of it comes back.
func Example() {
	ctx := context.Background()
	server, err := sandboxtest.NewServer(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	sb, err := server.Client().Create(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	folder, err := os.MkdirTemp("", "mirror-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	if err := os.WriteFile(filepath.Join(folder, "names"), []byte("b\na\n"), 0o644); err != nil {
		log.Fatal(err)
	}

	changes, err := mirror.Upload(ctx, sb, folder, "work", &mirror.Options{Delete: true})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("up:", changes.Write)
	if _, err := sb.RunCommand(ctx, "sh", []string{"-c", "sort work/names >work/sorted"}, nil); err != nil {
		log.Fatal(err)
	}
	changes, err = mirror.Download(ctx, sb, "work", folder, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("down:", changes.Write)
	// Output:
	// up: [names]
	// down: [sorted]
}
