package session

import (
	"context"
	"fmt"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/redact"
)

// MaxCommand is the maximum size of a command in bytes. Write larger scripts to a file in
// the sandbox.
const MaxCommand = 64 << 10

// Command is what [Client.Command] sends.
type Command struct {
	// Command is a script for bash.
	Command string
	// Key makes the command idempotent: only the first command of a session with the same
	// key runs. A session remembers its last 1,000 keys.
	Key string
	// Secret keeps the text out of Temporal's history, and stores it in Options.Output. The
	// history contains the SHA-256 of the text, which can confirm a guess. Viewers see the
	// text. It stays in the store until the session's output is removed, even if the
	// command is refused.
	Secret bool
}

// Format prints the command, without a secret text, for every verb.
func (c Command) Format(f fmt.State, verb rune) {
	if c.Secret {
		c.Command = redact.Mark
	}
	redact.Struct(f, verb, c)
}

// Command puts a command into the session's queue and returns its ID, which the command's
// events contain. It does not wait for the command.
func (c *Client) Command(ctx context.Context, id string, cmd Command) (commandID string, err error) {
	if err := c.check(ctx); err != nil {
		return "", err
	}
	if err := checkID(id); err != nil {
		return "", err
	}
	if len(cmd.Command) > MaxCommand {
		return "", fmt.Errorf("%w: the command has %d bytes; the limit is %d", sandbox.ErrInvalid, len(cmd.Command), MaxCommand)
	}
	if len(cmd.Key) > 200 {
		return "", fmt.Errorf("%w: the key has %d bytes; the limit is 200", sandbox.ErrInvalid, len(cmd.Key))
	}
	up := commandUpdate{Key: cmd.Key, Command: cmd.Command}
	if cmd.Secret && c.opts.Output == nil {
		return "", fmt.Errorf("%w: a secret command needs Options.Output, which is nil", sandbox.ErrInvalid)
	}
	if cmd.Secret {
		up.Command, up.Text = "", textName(cmd.Command)
		if err := c.storeText(ctx, id, up.Text, cmd.Command); err != nil {
			return "", err
		}
	}
	err = c.update(ctx, id, updateCommand, up, &commandID)
	return commandID, err
}

// storeText stores the text of a command, unless the session has ended.
func (c *Client) storeText(ctx context.Context, id, text, command string) error {
	s, err := c.State(ctx, id)
	if err == nil && (s.State == StateDestroyed || s.State == StateTerminated) {
		err = ErrDestroyed
	}
	if err != nil {
		return err
	}
	return c.archive.putText(ctx, id, text, command)
}
