package sandbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/go-vercel/sandbox"
)

func Example() {
	ctx := context.Background()
	sb, err := sandbox.Create(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Close()
	done, err := sb.RunCommand(ctx, "sh", []string{"-c", "echo hello; exit 3"}, &sandbox.CommandOptions{Stdout: os.Stdout})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("exit code", done.ExitCode)
	// Output:
	// hello
	// exit code 3
}

// A client with its own settings, shared by the whole program.
func ExampleNewClient() {
	client, err := sandbox.NewClient(&sandbox.ClientOptions{
		Logger:     slog.New(slog.NewTextHandler(os.Stderr, nil)),
		MaxRetries: 5, RetryWait: time.Second,
		UserAgent: "my-service/1.4",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.CloseIdleConnections()
}

func ExampleCreate() {
	ctx := context.Background()
	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{
		Runtime:       "python3.13",
		VCPUs:         2,
		Timeout:       20 * time.Minute,
		Ports:         []int{8000},
		Env:           map[string]string{"MODE": "test"},
		Tags:          map[string]string{"team": "search"},
		Ephemeral:     true, // its files are lost when it stops
		NetworkPolicy: &sandbox.NetworkPolicy{Allow: []string{"pypi.org", "files.pythonhosted.org"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Close()
	fmt.Println(sb.Status(), sb.Info().Timeout)
	// Output: running 20m0s
}

// Create a sandbox once, set it up once, and start its processes in each session.
func ExampleGetOrCreate() {
	ctx := context.Background()
	open := func() (*sandbox.Sandbox, error) {
		return sandbox.GetOrCreate(ctx, "workspace-7", &sandbox.CreateOptions{
			OnResume: func(context.Context, *sandbox.Sandbox) error {
				fmt.Println("resumed")
				return nil
			},
			OnCreate: func(ctx context.Context, sb *sandbox.Sandbox) error {
				fmt.Println("created")
				return sb.FS().WriteFile(ctx, "notes.txt", []byte("kept\n"), 0o644)
			},
		})
	}
	sb, err := open()
	if err != nil {
		log.Fatal(err)
	}
	if err := sb.Close(); err != nil {
		log.Fatal(err)
	}

	sb, err = open() // another day
	if err != nil {
		log.Fatal(err)
	}
	notes, err := sb.FS().ReadFile(ctx, "notes.txt")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(string(notes))
	if err := sb.Delete(ctx, nil); err != nil {
		log.Fatal(err)
	}
	// Output:
	// created
	// resumed
	// kept
}

func ExampleGet() {
	ctx := context.Background()
	_, err := sandbox.Get(ctx, "no-such-sandbox", nil)
	fmt.Println(errors.Is(err, sandbox.ErrNotFound))
	if e, ok := errors.AsType[*sandbox.APIError](err); ok {
		fmt.Println(e.Operation, e.Status)
	}
	// Output:
	// true
	// get sandbox 404
}

func ExampleFork() {
	ctx := context.Background()
	base, err := sandbox.Create(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer base.Delete(ctx, nil)
	if err := base.FS().WriteFile(ctx, "data.txt", []byte("from the base\n"), 0o644); err != nil {
		log.Fatal(err)
	}
	if _, err := base.Stop(ctx, nil); err != nil { // waits until the files are saved, unlike Close
		log.Fatal(err)
	}

	fork, err := sandbox.Fork(ctx, base.Name(), &sandbox.ForkOptions{Persistent: new(false)})
	if err != nil {
		log.Fatal(err)
	}
	defer fork.Close()
	data, err := fork.FS().ReadFile(ctx, "data.txt")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(string(data))
	// Output: from the base
}

// Delete the sandboxes that a test run has left.
func ExampleClient_List() {
	ctx := context.Background()
	client, err := sandbox.DefaultClient()
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range []string{"e2e-1", "e2e-2"} {
		if _, err := client.Create(ctx, &sandbox.CreateOptions{Name: name, Tags: map[string]string{"suite": "e2e"}}); err != nil {
			log.Fatal(err)
		}
	}
	stale := client.List(ctx, &sandbox.ListOptions{
		NamePrefix: "e2e-",
		Tags:       map[string]string{"suite": "e2e"},
		SortBy:     sandbox.SortByName,
		SortOrder:  sandbox.Ascending,
	})
	for info, err := range stale {
		if err != nil {
			log.Fatal(err)
		}
		if err := client.Delete(ctx, info.Name, nil); err != nil && !errors.Is(err, sandbox.ErrNotFound) {
			log.Fatal(err)
		}
		fmt.Println("deleted", info.Name)
	}
	// Output:
	// deleted e2e-1
	// deleted e2e-2
}

func ExampleCollect() {
	ctx := context.Background()
	sb, err := sandbox.Create(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Delete(ctx, nil)
	sessions, err := sandbox.Collect(sb.ListSessions(ctx, nil))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(sessions), sessions[0].Status)
	// Output: 1 running
}

// Read one page at a time, for a user interface.
func ExampleClient_ListPage() {
	ctx := context.Background()
	client, err := sandbox.DefaultClient()
	if err != nil {
		log.Fatal(err)
	}
	for i := range 3 {
		sb, err := client.Create(ctx, &sandbox.CreateOptions{Name: fmt.Sprintf("page-%d", i)})
		if err != nil {
			log.Fatal(err)
		}
		defer sb.Delete(ctx, nil)
	}
	opts := &sandbox.ListOptions{NamePrefix: "page-", SortBy: sandbox.SortByName, SortOrder: sandbox.Ascending, Limit: 2}
	for {
		page, err := client.ListPage(ctx, opts)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(len(page.Items), "from", page.Items[0].Name)
		if page.Next == "" {
			break
		}
		opts.Cursor = page.Next
	}
	// Output:
	// 2 from page-0
	// 1 from page-2
}

// Pass a handle as JSON to a worker, which continues to use it.
func ExampleSandbox_MarshalJSON() {
	ctx := context.Background()
	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{Name: "handed-over"})
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Delete(ctx, nil)
	message, err := json.Marshal(sb)
	if err != nil {
		log.Fatal(err)
	}

	var received sandbox.Sandbox
	if err := json.Unmarshal(message, &received); err != nil {
		log.Fatal(err)
	}
	done, err := received.RunCommand(ctx, "echo", []string{"here as well"}, &sandbox.CommandOptions{Stdout: os.Stdout})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(received.Name(), done.ExitCode)
	// Output:
	// here as well
	// handed-over 0
}

func ExampleSandbox_Update() {
	ctx := context.Background()
	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{Tags: map[string]string{"state": "new"}})
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Delete(ctx, nil)
	err = sb.Update(ctx, &sandbox.UpdateOptions{
		Timeout:           time.Hour, // also for the running session
		Tags:              map[string]string{"state": "ready"},
		KeepLastSnapshots: &sandbox.KeepLastSnapshots{Count: 3},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(sb.Info().Timeout, sb.Info().Tags["state"], sb.Info().KeepLastSnapshots.Count)
	// Output: 1h0m0s ready 3
}

func ExampleSandbox_Stop() {
	ctx := context.Background()
	sb, err := sandbox.Create(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Delete(ctx, nil)
	stopped, err := sb.Stop(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(stopped.Session.Status, "files saved:", stopped.Snapshot != nil)

	// Any call starts it again.
	if _, err := sb.RunCommand(ctx, "true", nil, nil); err != nil {
		log.Fatal(err)
	}
	fmt.Println(sb.Status())
	// Output:
	// stopped files saved: true
	// running
}

func ExampleSandbox_URL() {
	ctx := context.Background()
	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{Ports: []int{3000}, Ephemeral: true})
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Close()
	address, err := sb.URL(3000)
	fmt.Println(address != "", err)
	_, err = sb.URL(4000)
	fmt.Println(errors.Is(err, sandbox.ErrNoRoute), err)
	// Output:
	// true <nil>
	// true sandbox: no route for port 4000; exposed: 3000 (CreateOptions.Ports or Update expose others)
}

// A session's methods never start another session: they fail after it has ended, while
// the sandbox's methods start the next one.
func ExampleSandbox_CurrentSession() {
	ctx := context.Background()
	sb, err := sandbox.Create(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Delete(ctx, nil)
	session := sb.CurrentSession()
	if _, err := sb.Stop(ctx, nil); err != nil {
		log.Fatal(err)
	}
	_, err = session.RunCommand(ctx, "true", nil, nil)
	fmt.Println(errors.Is(err, sandbox.ErrStopped))
	// Output: true
}
