// Importer is a program in a module of its own that uses the SDK like other people's
// programs. TestImporter builds, tests and runs it.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/proxy"
)

func main() {
	ctx := context.Background()
	sb, err := sandbox.GetOrCreate(ctx, "importer", &sandbox.CreateOptions{
		OnCreate: func(ctx context.Context, sb *sandbox.Sandbox) error {
			return sb.WriteFiles(ctx, []sandbox.File{{Path: "who.txt", Content: []byte("a stranger")}}, nil)
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	out, err := sb.CommandContext(ctx, "cat", "who.txt").Output()
	if err != nil {
		log.Fatal(err)
	}
	if err := sb.Delete(ctx, nil); err != nil {
		log.Fatal(err)
	}
	_, err = sandbox.Get(ctx, "importer", nil)
	fmt.Printf("hello from %s, gone: %t\n", out, errors.Is(err, sandbox.ErrNotFound))
}

// Hook shows that another module can use the types of package proxy.
func Hook(next http.Handler) http.Handler {
	return proxy.Handler(next, &proxy.Options{Teams: []string{"team_123"}})
}
