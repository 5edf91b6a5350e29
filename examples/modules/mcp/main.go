// Mcp runs an MCP server in a sandbox, over standard input and output, and calls
// it with the MCP project's Go SDK.
//
//	go build -C examples/modules/mcp -o /tmp/mcp .
//	go run ./cmd/sandbox-emulator /tmp/mcp 'x = 6 * 7' 'print(x)' # needs python3
//
// Any server that uses standard input and output works in the same way:
// sb.CommandContext(ctx, "npx", "-y", "some-mcp-server").
package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

//go:embed server.py
var server string

func main() {
	programs := os.Args[1:]
	if len(programs) == 0 {
		programs = []string{"import platform; system = platform.system()", "print('hello from', system)", "1 / 0"}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, programs)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, programs []string) (err error) {
	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{Ephemeral: true, Timeout: 10 * time.Minute})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sb.Delete(context.WithoutCancel(ctx), nil)) }()
	if err := sb.FS().WriteFile(ctx, "server.py", []byte(server), 0o644); err != nil {
		return err
	}

	// Start the server as with os/exec.
	cmd := sb.CommandContext(ctx, "python3", "-u", "server.py")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "example", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.IOTransport{Reader: stdout, Writer: stdin}, nil)
	if err != nil {
		return err
	}

	for tool, err := range session.Tools(ctx, nil) {
		if err != nil {
			return err
		}
		fmt.Printf("tool %s: %s\n", tool.Name, tool.Description)
	}
	for _, code := range programs {
		result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "python", Arguments: map[string]any{"code": code}})
		if err != nil {
			return err
		}
		fmt.Printf(">>> %s\n", code)
		for _, content := range result.Content {
			if text, ok := content.(*mcp.TextContent); ok {
				fmt.Printf("%q\n", text.Text)
			}
		}
	}
	// Closing the session ends the server's input, which ends the server.
	if err := session.Close(); err != nil {
		return err
	}
	return cmd.Wait()
}
