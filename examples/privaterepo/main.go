// Privaterepo clones a private repository into a sandbox. The token is used
// only for the clone: programs in the sandbox don't see it.
//
//	GIT_TOKEN=… go run ./examples/privaterepo -repo https://github.com/acme/secret
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"os/signal"
	"path"
	"strings"

	"github.com/go-vercel/sandbox"
)

func main() {
	repo := flag.String("repo", "", "the https `URL` of the repository")
	user := flag.String("user", "x-access-token", "the `user` that the token in GIT_TOKEN is for; the default is GitHub's for any token")
	flag.Parse()
	if *repo == "" || os.Getenv("GIT_TOKEN") == "" {
		log.Fatal("give the repository by -repo and a token that may read it in GIT_TOKEN")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *repo, *user, os.Getenv("GIT_TOKEN")); err != nil {
		stop()
		log.Fatal(err)
	}
}

func run(ctx context.Context, repo, user, token string) error {
	// Fetch, then lock the door: code of the repository can't send anything
	// anywhere after that.
	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{
		Source:    sandbox.GitSource{URL: repo, Username: user, Password: token},
		Ephemeral: true,
	})
	if err != nil {
		return err
	}
	defer sb.Close()
	if _, err := sb.UpdateNetworkPolicy(ctx, sandbox.DenyAll()); err != nil {
		return err
	}

	// The repository is in a directory of its name.
	dir := strings.TrimSuffix(path.Base(repo), ".git")
	for _, command := range [][]string{
		{"git", "log", "--oneline", "-5"},
		{"git", "remote", "-v"}, // without the token
		{"ls", "-l"},
	} {
		if _, err := sb.RunCommand(ctx, command[0], command[1:], &sandbox.CommandOptions{Cwd: dir, Stdout: os.Stdout, Stderr: os.Stderr}); err != nil {
			return err
		}
	}
	return nil
}
