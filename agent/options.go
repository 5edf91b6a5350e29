package agent

import (
	"context"
	"os"

	"github.com/go-vercel/sandbox"
)

// Options configure a [Toolset]. The zero value offers every tool except those that
// need Artifacts, with the default limits.
type Options struct {
	Limits Limits
	// Tools, if not empty, are the names of the only tools that are offered.
	Tools []string
	// ReadOnly offers only tools that change nothing and run no program that the model wrote.
	// Listing and searching files still run programs of the sandbox.
	ReadOnly bool
	// Paths, if not empty, are absolute paths of directories in the sandbox. Tools for
	// files refuse paths outside of them, even through a symbolic link. Paths does not
	// restrict commands: leave out bash, start_command and python, or set ReadOnly. A
	// process that replaces links during a call can circumvent the check.
	Paths []string
	// Artifacts is a folder of this machine. The tools save_artifact and load_artifact
	// copy files between it and the sandbox. The model can read everything in the folder
	// except .git, and nothing else. It can replace everything except files that make Git
	// or an editor run something: files named HEAD, files next to one, .vscode and the
	// like. The caller closes it after the Toolset.
	Artifacts *os.Root
	// Environment is the beginning of the Instructions. It tells the model what kind of
	// machine its tools work on. Empty means an isolated Linux machine.
	Environment string
	// KeepRunning keeps the sandboxes that calls have used running until Close, as long as
	// the plan allows. By default a call keeps its sandbox running until the call's end
	// and [ConversationsOptions].Idle (or five minutes) longer. If less than that plus a
	// minute remains, the call extends the session, with one request.
	KeepRunning bool

	// Create, if not nil, is called by create_sandbox of [ForProject] with the options
	// of a sandbox that the model asks for, and may change them: set the image, the size or
	// the network policy, or add tags. The model reads an error from [Refuse].
	Create func(ctx context.Context, opts *sandbox.CreateOptions) error
	// Before, if not nil, is called before each call, and may wait for a person's
	// answer. If it returns nil, the call is made. The model reads an error from [Refuse];
	// any other error is for the program. [Call].Program contains everything that
	// decides what runs. If a path is relative, the Toolset looks the sandbox up before it
	// calls Before, because it needs the working directory.
	Before func(ctx context.Context, call Call) error
	// OnOutput, if not nil, receives the output of bash as it arrives. The output is not
	// filtered and may contain terminal escapes. data is valid until OnOutput returns.
	OnOutput func(call Call, data []byte)
	// OnError, if not nil, is called with each error that [Toolset.Call] returns. It is
	// for programs that use the Toolset through an adapter.
	OnError func(call Call, err error)
}
