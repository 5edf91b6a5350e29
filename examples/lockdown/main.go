// Lockdown lets a sandbox fetch what it needs, cuts it off from every network,
// and only then runs untrusted code.
//
//	go run ./examples/lockdown
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/url"
	"os"
	"os/signal"

	"github.com/go-vercel/sandbox"
)

// untrusted does its work, and tries to send the result somewhere else.
const untrusted = `
echo "counted $(wc -c < page.html | tr -d ' ') bytes"
if curl -sS --max-time 5 --data-binary @page.html "$1"; then
	echo "SENT IT AWAY"
else
	echo "could not send it away"
fi`

func main() {
	page := flag.String("url", "", "the `URL` to fetch; empty for https://example.com/, or on the emulator for a page of this program")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if *page == "" {
		address, done, err := defaultPage()
		if err != nil {
			log.Fatal(err)
		}
		defer done()
		*page = address
	}
	if err := run(ctx, *page); err != nil {
		stop()
		log.Fatal(err)
	}
}

func run(ctx context.Context, page string) error {
	u, err := url.Parse(page)
	if err != nil {
		return err
	}
	policy := &sandbox.NetworkPolicy{Allow: []string{u.Hostname()}} // and nothing else
	if u.Scheme != "https" {
		policy = sandbox.AllowAll() // domains are recognized by TLS: plain HTTP can't be allowed by name
	}
	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{Ephemeral: true, NetworkPolicy: policy})
	if err != nil {
		return err
	}
	defer sb.Close()

	fmt.Println("Fetching", page)
	fetch, err := sb.RunCommand(ctx, "curl", []string{"-sS", "--fail", "-o", "page.html", page}, &sandbox.CommandOptions{Stderr: os.Stderr})
	if err != nil {
		return err
	}
	if fetch.ExitCode != 0 {
		return errors.New("the page could not be fetched")
	}

	// In effect when this returns, even for open connections.
	if err := sb.Update(ctx, &sandbox.UpdateOptions{NetworkPolicy: sandbox.DenyAll()}); err != nil {
		return err
	}
	fmt.Println("Network policy:", sb.CurrentSession().Info().NetworkPolicy)

	_, err = sb.RunCommand(ctx, "bash", []string{"-c", untrusted, "bash", page}, &sandbox.CommandOptions{
		Stdout: os.Stdout,
		Stderr: os.Stderr,
	})
	return err
}
