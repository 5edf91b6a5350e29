package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"net/http"
	"os"

	"github.com/go-vercel/sandbox/auth"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	creds, err := auth.Default(nil).Credentials(ctx)
	if err != nil {
		return err
	}
	report, err := Ask(ctx, Service{
		URL: cmp.Or(os.Getenv("VERCEL_SANDBOX_BASE_URL"), "https://vercel.com/api"), Credentials: creds,
		HTTPClient: &http.Client{}, Users: true, Apart: true, Policies: true,
	})
	if report == nil {
		return err
	}
	fmt.Printf("%d answers\n", len(report.Answers))
	for _, change := range report.Changes() {
		mark := "  "
		if change.Differs {
			mark = "! "
		}
		fmt.Printf("%s%s: %s\n", mark, change.Row, change.Text)
	}
	for what, texts := range map[string][]string{"skipped": report.Skipped, "failed": report.Broken, "not deleted": report.Left} {
		for _, text := range texts {
			fmt.Printf("%s: %s\n", what, text)
		}
	}
	return err
}
