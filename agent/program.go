package agent

import (
	"fmt"
	"reflect"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/redact"
)

// Program is everything in a call that decides what runs in the sandbox. A policy should
// compare all of it, with [Program.Equal]: an environment variable alone can make bash,
// make, git and most interpreters run other code.
type Program struct {
	// Name is "bash" or "python3". It is empty for write_input, which writes to the
	// running command CommandID.
	Name      string
	CommandID string
	// Args are the arguments: "-c" and the command line for bash, none for python3.
	Args []string
	// Dir is the directory that it starts in, absolute and clean. Empty means the
	// sandbox's working directory.
	Dir string
	// Env are the variables that are added to those of the sandbox, or nil.
	Env sandbox.Env
	// Stdin is what is written to the standard input: the code of python, or the
	// text of write_input.
	Stdin string
	// StdinOpen reports that write_input can write more to the standard input.
	StdinOpen bool
}

// CommandLine returns the Program of a call of bash or start_command that has a command
// line and no other argument.
func CommandLine(line string) Program { return Program{Name: "bash", Args: []string{"-c", line}} }

// Format writes the program without the values of its variables.
func (p Program) Format(f fmt.State, verb rune) { redact.Struct(f, verb, p) }

// Equal reports whether all fields of two programs are equal.
func (p Program) Equal(other Program) bool { return reflect.DeepEqual(p, other) }
