// Mirror sends a local directory to a sandbox, works on it there, downloads the
// result, and shows the sandbox's files in a browser.
//
//	go run ./examples/mirror -dir .                    # there and back
//	go run ./examples/mirror -dir . -serve 127.0.0.1:8080
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/go-vercel/sandbox"
)

func main() {
	dir := flag.String("dir", ".", "the local `folder` to send")
	out := flag.String("out", "mirrored", "the local `folder` for the result")
	serve := flag.String("serve", "", "show the files of the sandbox at this `address`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *dir, *out, *serve); err != nil && !errors.Is(err, context.Canceled) {
		stop()
		log.Fatal(err)
	}
}

func run(ctx context.Context, dir, out, serve string) (err error) {
	sb, err := sandbox.Create(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sb.Delete(context.WithoutCancel(ctx), nil)) }()

	// One request, in constant memory, regardless of the size of the directory.
	err = sb.FS().UploadDir(ctx, dir, "src", &sandbox.UploadOptions{
		// Choose carefully what leaves the machine: the sandbox may reach the
		// internet, and runs whatever is in the directory.
		Exclude:  []string{".git", "node_modules", "*.log", ".env*", ".vercel", ".aws", ".ssh", ".npmrc", ".netrc", "*.pem", "*.key"},
		Progress: show("up"),
	})
	if err != nil {
		return err
	}

	// Any command would do; this one leaves a report next to each file.
	done, err := sb.RunCommand(ctx, "sh", []string{"-c", `mkdir -p ../report && find . -type f -exec sha256sum {} + > ../report/sums.txt && wc -l < ../report/sums.txt`}, &sandbox.CommandOptions{
		Cwd: "/vercel/src", Stdout: os.Stdout, Stderr: os.Stderr,
	})
	if err != nil {
		return err
	}
	if done.ExitCode != 0 {
		return fmt.Errorf("the command ended with exit code %d", done.ExitCode)
	}

	// The download is not trusted: nothing is written outside of the directory.
	if err := sb.FS().DownloadDir(ctx, "report", out, &sandbox.DownloadDirOptions{Progress: show("down")}); err != nil {
		return err
	}
	fmt.Println("The result is in", out)
	if serve == "" {
		return nil
	}

	server := &http.Server{Addr: serve, Handler: showOnly(http.FileServerFS(sb.FS().IOFS(ctx, "/vercel"))), ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	fmt.Println("The sandbox's files are at", serve)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// showOnly restricts what a page of the sandbox can do: it comes from an
// address of this machine, but must not be trusted like one.
func showOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "sandbox")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	})
}

// show prints the progress of a transfer, once per MiB.
func show(direction string) func(sandbox.Progress) {
	last := int64(-1)
	return func(p sandbox.Progress) {
		if mib := p.Done >> 20; mib != last {
			last = mib
			fmt.Fprintf(os.Stderr, "%s: %d of %d bytes, %s\n", direction, p.Done, p.Total, p.Path)
		}
	}
}
