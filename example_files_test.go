package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"testing/fstest"

	"github.com/go-vercel/sandbox"
)

func ExampleSandbox_WriteFiles() {
	ctx := context.Background()
	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{Ephemeral: true})
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Close()
	err = sb.WriteFiles(ctx, []sandbox.File{
		{Path: "bin/greet", Content: []byte("#!/bin/sh\necho \"hello, $1\"\n"), Mode: new(fs.FileMode(0o755))},
		{Path: "name.txt", Content: []byte("gopher")},
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := sb.RunCommand(ctx, "sh", []string{"-c", `bin/greet "$(cat name.txt)"`}, &sandbox.CommandOptions{Stdout: os.Stdout}); err != nil {
		log.Fatal(err)
	}
	// Output: hello, gopher
}

func ExampleFileSystem_Open() {
	ctx := context.Background()
	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{Ephemeral: true})
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Close()
	if err := sb.FS().WriteFile(ctx, "report.txt", []byte("all is well\n"), 0o644); err != nil {
		log.Fatal(err)
	}
	r, err := sb.FS().Open(ctx, "report.txt", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	if _, err := io.Copy(os.Stdout, r); err != nil {
		log.Fatal(err)
	}

	_, err = sb.FS().Open(ctx, "missing.txt", nil)
	fmt.Println(errors.Is(err, fs.ErrNotExist))
	// Output:
	// all is well
	// true
}

func ExampleFileSystem_DownloadFile() {
	ctx := context.Background()
	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{Ephemeral: true})
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Close()
	if _, err := sb.RunCommand(ctx, "sh", []string{"-c", "seq 3 > numbers.txt"}, nil); err != nil {
		log.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	local := filepath.Join(dir, "numbers.txt")
	if err := sb.FS().DownloadFile(ctx, "numbers.txt", local, nil); err != nil {
		log.Fatal(err)
	}
	data, err := os.ReadFile(local)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%q\n", data)
	// Output: "1\n2\n3\n"
}

// Upload a folder, work on it, and download it.
func ExampleFileSystem_UploadDir() {
	ctx := context.Background()
	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{Ephemeral: true})
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Close()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "in.txt"), []byte("data"), 0o644); err != nil {
		log.Fatal(err)
	}

	if err := sb.FS().UploadDir(ctx, dir, "job", &sandbox.UploadOptions{Exclude: []string{".git", "*.tmp"}}); err != nil {
		log.Fatal(err)
	}
	if _, err := sb.RunCommand(ctx, "cp", []string{"in.txt", "out.txt"}, &sandbox.CommandOptions{Cwd: sb.Cwd() + "/job"}); err != nil {
		log.Fatal(err)
	}
	if err := sb.FS().DownloadDir(ctx, "job", filepath.Join(dir, "result"), nil); err != nil {
		log.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "result", "*"))
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range names {
		fmt.Println(filepath.Base(name))
	}
	// Output:
	// in.txt
	// out.txt
}

// Any fs.FS works: an embed.FS, a zip archive, or one that a test generates.
func ExampleFileSystem_CopyFS() {
	ctx := context.Background()
	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{Ephemeral: true})
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Close()
	site := fstest.MapFS{
		"index.html":    {Data: []byte("<h1>Hello</h1>")},
		"css/style.css": {Data: []byte("h1 { color: teal }")},
	}
	if err := sb.FS().CopyFS(ctx, "public", site, nil); err != nil {
		log.Fatal(err)
	}
	if _, err := sb.RunCommand(ctx, "find", []string{"public", "-type", "f"}, &sandbox.CommandOptions{Stdout: os.Stdout}); err != nil {
		log.Fatal(err)
	}
	// Unordered output:
	// public/index.html
	// public/css/style.css
}

func ExampleFileSystem() {
	ctx := context.Background()
	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{Ephemeral: true})
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Close()
	files := sb.FS()
	if err := files.MkdirAll(ctx, "logs/2026", 0o755); err != nil {
		log.Fatal(err)
	}
	if err := files.WriteFile(ctx, "logs/2026/app.log", []byte("started\n"), 0o600); err != nil {
		log.Fatal(err)
	}
	if err := files.AppendFile(ctx, "logs/2026/app.log", []byte("stopped\n")); err != nil {
		log.Fatal(err)
	}
	info, err := files.Stat(ctx, "logs/2026/app.log")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(info.Name(), info.Size(), info.Mode())
	if err := files.RemoveAll(ctx, "logs"); err != nil {
		log.Fatal(err)
	}
	_, err = files.ReadDir(ctx, "logs")
	fmt.Println(errors.Is(err, fs.ErrNotExist))
	// Output:
	// app.log 16 -rw-------
	// true
}

// Write a file of any size as it is generated.
func ExampleFileSystem_Create() {
	ctx := context.Background()
	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{Ephemeral: true})
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Close()
	w, err := sb.FS().Create(ctx, "table.csv", nil)
	if err != nil {
		log.Fatal(err)
	}
	for i := range 1000 {
		if _, err := fmt.Fprintf(w, "%d,%d\n", i, i*i); err != nil {
			w.Abort()
			log.Fatal(err)
		}
	}
	if err := w.Close(); err != nil { // if it succeeds, the file exists and is complete
		log.Fatal(err)
	}
	if _, err := sb.RunCommand(ctx, "tail", []string{"-n", "1", "table.csv"}, &sandbox.CommandOptions{Stdout: os.Stdout}); err != nil {
		log.Fatal(err)
	}
	// Output: 999,998001
}

// Use a sandbox's files where an fs.FS is expected.
func ExampleFileSystem_IOFS() {
	ctx := context.Background()
	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{Ephemeral: true})
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Close()
	if err := sb.WriteFiles(ctx, []sandbox.File{{Path: "site/a.md", Content: []byte("# A")}, {Path: "site/b.txt", Content: []byte("B")}, {Path: "site/c.md", Content: []byte("# C")}}, nil); err != nil {
		log.Fatal(err)
	}
	pages, err := fs.Glob(sb.FS().IOFS(ctx, "site"), "*.md")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(pages)
	// Output: [a.md c.md]
}

// Two agents in one sandbox have their own homes and share a folder.
func ExampleSandbox_CreateUser() {
	ctx := context.Background()
	sb, err := sandbox.Create(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Close()
	if _, err := sb.CreateGroup(ctx, "agents"); err != nil {
		log.Fatal(err)
	}
	for _, name := range []string{"writer", "reader"} {
		user, err := sb.CreateUser(ctx, name)
		if errors.Is(err, sandbox.ErrConflict) {
			user, err = sb.AsUser(name)
		}
		if err != nil {
			log.Fatal(err)
		}
		if err := user.AddToGroup(ctx, "agents"); err != nil {
			log.Fatal(err)
		}
	}
	writer, err := sb.AsUser("writer")
	if err != nil {
		log.Fatal(err)
	}
	done, err := writer.RunCommand(ctx, "sh", []string{"-c", "date > /shared/agents/started"}, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(done.ExitCode)
}
