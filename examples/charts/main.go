// Charts lets Python draw data in a sandbox and downloads the pictures.
//
//	go run ./examples/charts -out .
package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/go-vercel/sandbox"
)

// script uses nothing but Python's standard library. A language model would
// write it, with matplotlib and a "pip install" before.
//
//go:embed chart.py
var script string

const data = `month,orders
Jan,120
Feb,95
Mar,180
Apr,240
May,210
Jun,300
`

func main() {
	out := flag.String("out", ".", "the `directory` to put the pictures in")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *out); err != nil {
		stop()
		log.Fatal(err)
	}
}

func run(ctx context.Context, out string) error {
	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{
		Runtime:       "python3.13",
		Ephemeral:     true,
		NetworkPolicy: sandbox.DenyAll(), // the script needs nothing but its data
	})
	if err != nil {
		return err
	}
	defer sb.Close()

	if err := sb.WriteFiles(ctx, []sandbox.File{
		{Path: "chart.py", Content: []byte(script)},
		{Path: "orders.csv", Content: []byte(data)},
	}, nil); err != nil {
		return err
	}
	done, err := sb.RunCommand(ctx, "python3", []string{"chart.py", "orders.csv"}, &sandbox.CommandOptions{
		Stdout: os.Stdout,
		Stderr: os.Stderr,
	})
	if err != nil {
		return err
	}
	if done.ExitCode != 0 {
		return fmt.Errorf("the script exited with %d", done.ExitCode)
	}
	for _, name := range []string{"chart.png", "chart.svg"} {
		local := filepath.Join(out, name)
		if err := sb.FS().DownloadFile(ctx, name, local, &sandbox.DownloadFileOptions{MkdirAll: true}); err != nil {
			return err
		}
		fmt.Println("Saved", local)
	}
	return nil
}
