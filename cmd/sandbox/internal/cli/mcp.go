package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/agent"
	"github.com/go-vercel/sandbox/agent/mcptools"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
)

// localMachine describes local sandboxes to an agent and its user. It must not promise any
// isolation, because they have none.
const localMachine = "Your tools work in sandboxes of an emulator on the user's own machine, to try code in. They are NOT isolated: what runs in them is a process " +
	"of this machine, can reach its network, and may be able to read and change its files. Run nothing in them that you would not run on the machine itself."

type mcpCommand struct {
	deps

	only string
}

func (c *mcpCommand) command() *line.Command {
	return &line.Command{
		Name: "mcp", Title: titleTools, Short: "Serve sandboxes as tools of an agent, over the Model Context Protocol",
		Long: "Serve sandboxes as tools of an agent over standard input and output: run commands and Python, work with files, ports and snapshots. " +
			"With --only, the tools work on one sandbox and can neither create nor remove any. " +
			"The timeout of a sandbox in use is extended while the client is connected, as far as the plan allows. For Claude: claude mcp add sandbox -- sandbox mcp --only my-app",
		Options: func(flags *pflag.FlagSet) {
			line.Option(flags, &c.only, "only", "", "name", "", "The only sandbox that the tools may use", line.ParseText)
		},
		Example: "mcp --only my-app", Run: c.run,
	}
}

func (c *mcpCommand) run(cmd *cobra.Command, _ []string) (err error) {
	c.screen.Opts.NoInput = true
	opts := &agent.Options{KeepRunning: true, OnError: func(call agent.Call, err error) {
		c.screen.Warn(fmt.Sprintf("%s: %v", call.Tool, err), "the agent got its own message")
	}}
	if c.account.Given.Local {
		c.screen.Warn("the sandboxes of --local are processes of this machine and not isolated from it", "let only agents use them that may run commands on this machine")
		opts.Environment = localMachine
	}
	if c.only != "" {
		if err := c.account.CheckName(c.only); err != nil {
			return err
		}
	}
	client, err := c.account.Connect(cmd.Context())
	if err != nil {
		// MCP clients show their users the results of tools, but not why a server has
		// ended. So start the server, and return this error from every tool.
		why := c.screen.Explain(err)
		c.screen.Warn(why.Message, why.Hint)
		opts.Before = func(context.Context, agent.Call) error {
			return agent.Refuse(fmt.Sprintf("%s; %s; then start this server again (tell the user)", why.Message, why.Hint))
		}
		if client, err = sandbox.NewClient(nil); err != nil {
			return err
		}
	}
	tools := agent.ForProject(client, opts)
	if c.only != "" {
		tools = agent.ForConversation(agent.ByName(client), c.only, opts)
	}
	defer func() { err = errors.Join(err, tools.Close()) }()
	server := mcptools.NewServer(tools, &mcp.Implementation{Name: "sandbox", Title: "Vercel Sandbox", Version: Version()})
	writer := &messageWriter{to: c.screen.Out.Raw}
	return server.Run(cmd.Context(), &mcp.IOTransport{Reader: newMCPReader(c.screen.In, writer), Writer: writer})
}

// messageWriter writes messages to standard output. Each write is a whole line.
type messageWriter struct {
	mu sync.Mutex
	to io.Writer
}

func (a *messageWriter) Write(line []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.to.Write(line)
}

func (*messageWriter) Close() error { return nil }

// messageReader reads the valid messages of a client. Because an invalid line would end the
// server, messageReader answers it with a JSON-RPC error and skips it.
type messageReader struct {
	io.Closer
	lines   *bufio.Scanner
	answers *messageWriter
	rest    []byte
}

func newMCPReader(in *os.File, answers *messageWriter) *messageReader {
	m := &messageReader{Closer: in, lines: bufio.NewScanner(in), answers: answers}
	m.lines.Buffer(nil, mcp.DefaultMaxLineLength)
	return m
}

func (m *messageReader) Read(p []byte) (int, error) {
	for len(m.rest) == 0 {
		if !m.lines.Scan() {
			return 0, cmp.Or(m.lines.Err(), io.EOF)
		}
		line := bytes.TrimSpace(m.lines.Bytes())
		if len(line) == 0 {
			continue
		}
		if reply := errorReply(line); reply != nil {
			if _, err := m.answers.Write(reply); err != nil {
				return 0, err
			}
			continue
		}
		m.rest = append(bytes.Clone(line), '\n')
	}
	n := copy(p, m.rest)
	m.rest = m.rest[n:]
	return n, nil
}

// errorReply returns the answer to a line that is not a message, or nil if the line is a
// message.
func errorReply(line []byte) []byte {
	code, text := jsonrpc.CodeParseError, "the line is not JSON"
	if json.Valid(line) {
		code, text = jsonrpc.CodeInvalidRequest, "the line is not a message of JSON-RPC 2.0"
		all := []json.RawMessage{line}
		if line[0] == '[' {
			_ = json.Unmarshal(line, &all) // line is valid JSON
		}
		if len(all) > 0 && !slices.ContainsFunc(all, func(m json.RawMessage) bool { _, err := jsonrpc.DecodeMessage(m); return err != nil }) {
			return nil
		}
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":%q}}`+"\n", code, text)
}
