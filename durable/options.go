package durable

import (
	"cmp"
	"fmt"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/internal/redact"
)

// Options describes the sandbox of a workflow. All of it becomes part of the workflow's
// history, so don't put secrets into it. Use EnvFrom for environment variables.
type Options struct {
	// Name is the sandbox's name. Empty means "durable-" and the workflow's ID.
	Name string `json:"name,omitempty"`
	// Runtime and Image exclude each other; see sandbox.CreateOptions.
	Runtime string `json:"runtime,omitempty"`
	Image   string `json:"image,omitempty"`
	// SnapshotID is a snapshot to begin from, and Git a repository. They exclude each
	// other.
	SnapshotID string `json:"snapshotId,omitempty"`
	Git        *Git   `json:"git,omitempty"`
	// Region is where machines start, and FailoverRegions where they start if that is not
	// possible.
	Region          string   `json:"region,omitempty"`
	FailoverRegions []string `json:"failoverRegions,omitempty"`
	// Mounts maps directories to drives.
	Mounts map[string]sandbox.Mount `json:"mounts,omitempty"`
	// Ports are the ports to expose.
	Ports []int `json:"ports,omitempty"`
	// NetworkPolicy is the policy of a new sandbox. Nil allows everything. Its JSON has no
	// values of headers: [Worker.Prepare] sets them.
	NetworkPolicy *sandbox.NetworkPolicy `json:"networkPolicy,omitempty"`
	// VCPUs is the size of machines. Zero means the platform's default.
	VCPUs int `json:"vcpus,omitempty"`
	// Tags are the sandbox's tags. This package adds "durable" and "durable-workflow".
	Tags map[string]string `json:"tags,omitempty"`
	// EnvFrom names the environment that [Worker.Env] gives each command.
	EnvFrom string `json:"envFrom,omitempty"`
	// Lease is how long the machine may run after its last use. It is the machine's
	// timeout, which is renewed while commands run. Zero means 15 minutes.
	Lease time.Duration `json:"lease,omitempty"`
	// Heartbeat is how long a worker may be silent before another worker takes over its
	// activity. Zero means 10 seconds. The minimum is one second.
	Heartbeat time.Duration `json:"heartbeat,omitempty"`
	// FollowQueue is the task queue of the workers that follow commands; see
	// [Worker.RegisterFollow]. Following takes a worker's slot as long as the command
	// runs. With a queue of its own, it takes no slot from activities that start and
	// interrupt commands. Empty means the workflow's queue.
	FollowQueue string `json:"followQueue,omitempty"`
}

// Git is a repository that a sandbox begins with. [Worker.Prepare] sets the credentials of
// a private one.
type Git struct {
	// URL is the address. Leave credentials to [Worker.Prepare]: a user, a password and
	// the query are never printed, but they become part of the history.
	URL string `json:"url" secret:"url"`
	// Revision is a branch, tag or commit. Empty means the default branch.
	Revision string `json:"revision,omitempty"`
	// Depth limits the history to that many commits. Zero fetches all of it.
	Depth int `json:"depth,omitempty"`
}

// Format prints the repository without credentials, for every verb.
func (g Git) Format(f fmt.State, verb rune) { redact.Struct(f, verb, g) }

func (o Options) lease() time.Duration { return cmp.Or(o.Lease, 15*time.Minute) }

func (o Options) heartbeat() time.Duration {
	return max(cmp.Or(o.Heartbeat, 10*time.Second), time.Second)
}
