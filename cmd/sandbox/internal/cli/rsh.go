package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
	"github.com/go-vercel/sandbox/internal/rawshell"
)

// sshOptions lists the options of ssh that programs may pass, except -l: first those with a
// value, then, after a space, those without.
const sshOptions = "bcDEeFIiJLmOopQRSWw 46AaCfGgKkMNnqsTtVvXxYy"

type rshCommand struct {
	deps

	user string
}

func (c *rshCommand) command() *line.Command {
	return &line.Command{
		Name: "rsh", Near: []string{"rsync"}, Title: titleFiles, Short: "Run a command for rsync, git and other programs that call ssh", Foreign: "1", SSH: sshOptions,
		Long: "Run a command for a program that calls ssh, and pass standard input and output on byte for byte: " +
			"rsync -e 'sandbox rsh', and git with GIT_SSH_COMMAND='sandbox rsh' and GIT_SSH_VARIANT=simple. It accepts the " +
			"options of ssh, uses -l and USER@ before the name, and ignores the rest. The sandbox needs bash and stty. Standard error is shown when the command has ended.",
		Args: []line.Argument{line.NameArg, {Name: "command", Text: "The program to run"}, line.MoreWords},
		Check: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return screen.WithHint(line.Usagef("rsh needs the name of a sandbox and a command"), "for a shell use %s", screen.Try("connect NAME"))
			}
			return nil
		},
		Options: func(flags *pflag.FlagSet) {
			line.Option(flags, &c.user, "user", "l", "user", "", "The user to run the command as", line.ParseText)
		},
		Example: "rsh my-app tar -c src", Run: c.run,
	}
}

func (c *rshCommand) run(cmd *cobra.Command, args []string) error {
	name, words := args[0], strings.Join(args[1:], " ")
	if before, after, ok := strings.Cut(name, "@"); ok && before != "" {
		c.user, name = before, after
	}
	if c.user != "" && c.user != "vercel-sandbox" {
		words = "sudo -u " + line.ShellWord(c.user) + " -- bash -c " + line.ShellWord(words)
	}
	sb, err := c.account.Named(cmd.Context(), name, true)
	if err != nil {
		return err
	}
	return c.remoteShell(cmd.Context(), sb, words)
}

// rshScript runs a command line. Its standard output is the terminal. Its standard input
// comes through the terminal in blocks, because a terminal in raw mode has no byte for the
// end. A block is a line with its length, followed by that many bytes; a block of length 0
// is the end. The read of Bash takes more than one line from a terminal, but exactly one
// line from a pipe. So cat pipes the input to it. The terminal is opened a second time for
// input: rsync makes its output non-blocking, which must not affect the input. Standard
// error goes to a file, the first argument.
var rshScript = rawshell.Raw + `exec 2>"$1" || exit 125
{ exec 3</dev/tty; } 2>/dev/null || exec 3<&0
blocks() {
	while IFS= read -r n && [ "$n" -gt 0 ]; do head -c "$n" || break; done
}
` + rawshell.Greet + `bash -c "$2" < <(blocks < <(cat <&3)) 3<&-`

// blocks writes the blocks that rshScript reads.
type blocks struct{ w io.Writer }

// blockSize is the maximum size of a block. The sandbox starts a program for each block.
const blockSize = 64 << 10

func (b blocks) Write(p []byte) (n int, err error) {
	for part := range slices.Chunk(p, blockSize) {
		if _, err := b.w.Write(append(fmt.Appendf(nil, "%d\n", len(part)), part...)); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

func (b blocks) Close() error {
	_, err := io.WriteString(b.w, "0\n")
	return err
}

func (c *rshCommand) remoteShell(ctx context.Context, sb *sandbox.Sandbox, words string) error {
	stderrFile := "/tmp/.sandbox-rsh-" + strings.ToLower(rand.Text()[:12])
	conn, err := rawshell.Open(ctx, sb, "bash", rshScript, stderrFile, words)
	if err != nil {
		return err
	}
	defer conn.Close()
	go c.passInput(blocks{conn}) // ends when the connection is closed
	_, copyErr := io.Copy(c.screen.Out.Raw, conn)
	late, cancel := withDeadline(ctx, cleanUpTimeout)
	defer cancel()
	if err := c.copyErrors(late, sb, stderrFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.screen.Warn("could not show all of the command's standard error: "+err.Error(), "write less, or to a file")
	}
	if err := sb.FS().Remove(late, stderrFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.screen.Warn("could not remove "+stderrFile+": "+err.Error(), "delete it yourself")
	}
	if copyErr != nil {
		return copyErr
	}
	code, err := conn.Wait(ctx)
	if err != nil {
		return fmt.Errorf("how the command ended is not known: %w", err)
	}
	return screen.ExitWith(code)
}

// maxErrors limits how much of a command's standard error rsh shows.
const maxErrors = 16 << 20

// copyErrors copies the file that contains the command's standard error to this program's.
// The command may have replaced the file by something else, which copyErrors does not read,
// or made it very long.
func (c *rshCommand) copyErrors(ctx context.Context, sb *sandbox.Sandbox, name string) error {
	info, err := sb.FS().Lstat(ctx, name)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no longer a regular file", name)
	}
	f, err := sb.FS().Open(ctx, name, nil)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := io.Copy(c.screen.Err, io.LimitReader(f, maxErrors)); err != nil {
		return nil // there may be no reader
	}
	if info.Size() > maxErrors {
		return fmt.Errorf("it has more than %d MiB", maxErrors>>20)
	}
	return nil
}
