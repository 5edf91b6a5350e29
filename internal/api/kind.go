package api

import (
	"os/exec"
	"slices"
	"strings"
	"syscall"
)

// Kind is the meaning of a failure. Only the table below compares statuses, codes and texts
// of the API.
type Kind int

// The kinds of failures.
const (
	Unjudged      Kind = iota // not yet determined
	Refused                   // the API refuses it for a reason that is not listed below
	Broken                    // no response, a truncated one, or a proxy's that could not forward the request
	Foreign                   // a refusal that is not from the API
	TooMuch                   // a success that is larger than the client accepts
	Busy                      // the API is temporarily unable
	TimedOut                  // the API or a proxy timed out
	RateLimited               // too many requests
	Stopped                   // the session has ended
	Stopping                  // the session is ending
	FilesGone                 // the sandbox can't be resumed
	SnapshotGone              // the snapshot does not exist
	CommandEnded              // the command has ended
	NotFound                  // the object does not exist
	ImageNotReady             // the image is still being prepared
	QuotaExceeded             // the plan does not allow more
	NoDrives                  // the project may not use drives
	Unauthorized              // the credentials do not allow it
	NameTaken                 // a sandbox of this name exists
	Conflict                  // it conflicts with an existing object
	IDsRefused                // the service does not support chosen command IDs
	InputRefused              // the service does not support input to running commands
	InputClosed               // the command reads no more input
	NoProgram                 // the program does not exist in the sandbox
	TimeLimit                 // the plan's maximum session duration is reached
	NoDirectory               // the working directory does not exist
	FileError                 // the message ends with the text of an errno
	numberOfKinds = iota
)

// kindNames are the outcomes for events.
var kindNames = [numberOfKinds]string{
	Unjudged: "unjudged", Refused: "refused", Broken: "broken", Foreign: "foreign", TooMuch: "too_much", Busy: "busy", TimedOut: "timed_out",
	RateLimited: "rate_limited", Stopped: "stopped", Stopping: "stopping", FilesGone: "files_gone", SnapshotGone: "snapshot_gone",
	CommandEnded: "command_ended", NotFound: "not_found", ImageNotReady: "image_not_ready", QuotaExceeded: "quota_exceeded",
	NoDrives: "no_drives", Unauthorized: "unauthorized", NameTaken: "name_taken", Conflict: "conflict", IDsRefused: "ids_refused",
	InputRefused: "input_refused", InputClosed: "input_closed", NoProgram: "no_program", TimeLimit: "time_limit", NoDirectory: "no_directory", FileError: "file_error",
}

// String returns the kind as events show it.
func (k Kind) String() string { return kindNames[k] }

// retryPolicy says when a request is sent again after a failure.
type retryPolicy int

const (
	never retryPolicy = iota
	ifSafe
	always
)

// failureRule is a row of the table.
type failureRule struct {
	kind   Kind
	status []int    // none: 400 to 499
	codes  []string // none: any
	texts  []string // what the message contains, in lower case; none: any
	ops    func(*Op) bool
	// mayHaveEffect is set if the operation may have taken effect despite the failure.
	mayHaveEffect bool
	retry         retryPolicy
}

// failureRules is the table; the first matching row counts.
var failureRules = []failureRule{
	{kind: SnapshotGone, status: []int{404}, codes: []string{"snapshot_not_found"}, ops: func(op *Op) bool { return !ofSandbox(op) }},
	// The service has reported with 400 and with 410, with and without a code,
	// that a sandbox can't be resumed.
	{kind: FilesGone, codes: []string{"snapshot_not_found"}},
	{kind: FilesGone, status: []int{400}, texts: []string{"cannot resume sandbox"}},
	{kind: Stopped, status: []int{410}},
	{kind: Stopping, status: []int{422}, codes: []string{"sandbox_stopping", "sandbox_snapshotting"}},
	{kind: CommandEnded, status: []int{404}, codes: []string{"command_not_found_or_exited"}},
	{kind: CommandEnded, status: []int{400}, codes: []string{"command_finished"}},
	{kind: NotFound, status: []int{404}},
	{kind: ImageNotReady, codes: []string{"image_not_ready"}},
	{kind: RateLimited, status: []int{429}, retry: always},
	{kind: RateLimited, codes: []string{"rate_limited"}},
	{kind: QuotaExceeded, status: []int{402}},
	{kind: NoDrives, status: []int{403}, ops: (*Op).Drive},
	{kind: NoDrives, status: []int{403}, texts: []string{"drives are"}},
	{kind: Unauthorized, status: []int{401, 403}},
	{kind: Conflict, status: []int{409}, texts: []string{"drive"}},
	{kind: NameTaken, status: []int{409}, ops: makesSandbox},
	{kind: NameTaken, status: []int{400}, texts: []string{"already exists", "taken", "already in use"}, ops: makesSandbox},
	{kind: Conflict, status: []int{409, 423}},
	{kind: IDsRefused, status: []int{400}, texts: []string{"cmdid"}, ops: startsCommand},
	{kind: InputRefused, status: []int{400}, texts: []string{"attachstdin"}, ops: startsCommand},
	{kind: NoProgram, status: []int{400}, codes: []string{"executable_not_found"}, ops: startsCommand},
	{kind: NoProgram, status: []int{400}, texts: []string{strings.ToLower(exec.ErrNotFound.Error())}, ops: startsCommand},
	{kind: TimeLimit, status: []int{400}, codes: []string{"sandbox_timeout_invalid"}, ops: func(op *Op) bool { return op == ExtendTimeout }},
	{kind: NoDirectory, status: []int{400}, texts: []string{"no such directory", "no such file or directory"}, ops: startsCommand},
	{kind: InputClosed, codes: []string{"command_stdin_unavailable"}},
	{kind: FileError, status: []int{400}, codes: []string{"file_error"}},
	{kind: FileError, status: []int{400}, texts: []string{"permission denied", ": not a directory"}, ops: startsCommand},
	// The request had no effect, but a retry may not help.
	{kind: Busy, status: []int{425}, retry: ifSafe},
}

// Verdicts after which the operation may have taken effect.
var (
	timedOut       = failureRule{kind: TimedOut, mayHaveEffect: true, retry: ifSafe}
	busy           = failureRule{kind: Busy, mayHaveEffect: true, retry: ifSafe}
	limited        = failureRule{kind: RateLimited, mayHaveEffect: true, retry: ifSafe}
	noResponse     = failureRule{kind: Broken, mayHaveEffect: true, retry: ifSafe}
	foreignRefusal = failureRule{kind: Foreign, mayHaveEffect: true, retry: ifSafe}
	tooMuch        = failureRule{kind: TooMuch, mayHaveEffect: true}
)

func ofSandbox(op *Op) bool     { return strings.Contains(op.Path, "{sandbox}") }
func makesSandbox(op *Op) bool  { return op.Name == CreateSandbox.Name || op.Name == ForkSandbox.Name }
func startsCommand(op *Op) bool { return op.Name == RunCommand.Name || op.Name == StartCommand.Name }

// judge returns the row for a response. A refusal without a code is not the API's, so the
// operation may have taken effect.
func judge(op *Op, status int, code, message string) failureRule {
	if code == "" {
		switch {
		case slices.Contains([]int{408, 504}, status):
			return timedOut
		case status == 429:
			return limited
		case status < 300, status == 425, status >= 500:
			return noResponse
		}
		return foreignRefusal
	}
	message = strings.ToLower(message)
	for _, j := range failureRules {
		if j.matches(op, status, code, message) {
			return j
		}
	}
	switch {
	case slices.Contains([]int{408, 504}, status):
		return timedOut
	case status >= 500:
		return busy // a gateway may have forwarded the request
	case status >= 400:
		return failureRule{kind: Refused}
	}
	return noResponse
}

func (j *failureRule) matches(op *Op, status int, code, message string) bool {
	if len(j.status) == 0 && (status < 400 || status >= 500) || len(j.status) > 0 && !slices.Contains(j.status, status) {
		return false
	}
	return (len(j.codes) == 0 || slices.Contains(j.codes, code)) && (j.ops == nil || j.ops(op)) &&
		(len(j.texts) == 0 || slices.ContainsFunc(j.texts, func(text string) bool { return strings.Contains(message, text) }))
}

// KindOf returns the kind of an error response of the API. operation is the operation's
// name.
func KindOf(operation string, status int, code, message string) Kind {
	op := &Op{Name: operation}
	if i := slices.IndexFunc(Table, func(op *Op) bool { return op.Name == operation }); i >= 0 {
		op = Table[i]
	}
	return judge(op, status, code, message).kind
}

// NeverStarted reports whether the message of a "not found" response says that the sandbox
// exists but never had a session. Such a sandbox keeps its name.
func NeverStarted(message string) bool {
	return strings.Contains(strings.ToLower(message), "no latest sandbox")
}

// StreamClosed reports whether the code of an error record in a stream means that the
// service has closed the stream. The session may have ended, but need not.
func StreamClosed(code string) bool { return code == "sandbox_stream_closed" }

// FileErrno returns the errno for the code and message of an error about a file, or zero.
func FileErrno(code, message string) syscall.Errno {
	switch code {
	case "is_directory":
		return syscall.EISDIR
	case "not_directory", "not_a_directory":
		return syscall.ENOTDIR
	case "already_exists", "file_exists", "exists":
		return syscall.EEXIST
	case "permission_denied":
		return syscall.EACCES
	case "no_space", "disk_full":
		return syscall.ENOSPC
	}
	switch strings.ToLower(message) {
	case "exists", "already exists":
		return syscall.EEXIST
	case "disk full":
		return syscall.ENOSPC
	}
	return 0
}

// FileMissing reports whether a 404 to an operation on a file is about the file,
// and not about its sandbox or session.
func FileMissing(code, message string) bool {
	what, found := strings.CutSuffix(code, "_not_found")
	if found && what != "file" && what != "path" {
		return false
	}
	message = strings.TrimPrefix(strings.ToLower(message), "vercel ")
	return !strings.HasPrefix(message, "sandbox not found") && !strings.HasPrefix(message, "session not found") &&
		!strings.HasPrefix(message, "named sandbox ")
}

// Final reports whether the API will refuse the same request again.
func (k Kind) Final() bool {
	switch k {
	case Refused, IDsRefused, InputRefused, NoProgram, TimeLimit, NoDirectory, FileError:
		return true
	}
	return false
}

// Passing reports whether the same request may succeed later.
func (k Kind) Passing() bool {
	switch k {
	case Broken, Foreign, Busy, TimedOut, RateLimited:
		return true
	}
	return false
}

// Unknowing reports whether a lookup failed because the object does not exist or can't exist.
func (k Kind) Unknowing() bool { return k == NotFound || k == CommandEnded || k == Refused }
