package modeltest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Step is one call, or a few calls that belong together, with a fault.
type Step struct {
	Kind Kind
	// File is the number of the file that the step uses. Size determines how much the step
	// prints or writes.
	File, Size int
	Fault      Fault
}

// Fault is a fault that happens at the Nth of the requests that On selects: before the request,
// after its response, or after At bytes of the response.
type Fault struct {
	What What
	When When
	On   Class
	Nth  int
	At   int
}

// Kind is the kind of a step, which determines its calls.
type Kind string

// These are the kinds of steps.
const (
	// Commands.
	Run    Kind = "run"    // RunCommand without writers
	Start  Kind = "start"  // StartCommand with a writer, and Wait
	Fetch  Kind = "fetch"  // Stdout and Stderr of an ended command
	Exec   Kind = "exec"   // Cmd.Output
	Talk   Kind = "talk"   // Command.Stdin of a running command
	Kill   Kind = "kill"   // one SIGINT to a command that counts them
	Cancel Kind = "cancel" // RunCommand with KillOnCancel
	Keep   Kind = "keep"   // two starts with the same ID, which the caller has chosen
	Follow Kind = "follow" // Logs of a running command
	Feed   Kind = "feed"   // Cmd with a Stdin of known length
	Shell  Kind = "shell"  // terminal.Open
	// Files.
	Append   Kind = "append"   // AppendFile of a line to an existing file
	Upload   Kind = "upload"   // AppendFile of so much that the client uploads it
	Appends  Kind = "appends"  // AppendFile by several goroutines
	Write    Kind = "write"    // a FileWriter of several pieces
	Replace  Kind = "replace"  // FileSystem.WriteFile
	Truncate Kind = "truncate" // FileSystem.Truncate
	Remove   Kind = "remove"   // FileSystem.Remove
	Rename   Kind = "rename"   // FileSystem.Rename
	Copy     Kind = "copy"     // FileSystem.CopyFile
	Sweep    Kind = "sweep"    // FileSystem.RemoveAll
	Link     Kind = "link"     // MkdirAll, Symlink, Chmod, Chown and MkdirTemp
	Read     Kind = "read"     // ReadFile, Stat and ReadDir
	Mkdir    Kind = "mkdir"    // Mkdir as a lock
	Tree     Kind = "tree"     // UploadDir, CopyFS, DownloadDir and DownloadFile
	// Sandboxes and sessions.
	Stop    Kind = "stop"    // Stop, and a call that resumes the sandbox
	Update  Kind = "update"  // Update of the tags
	Extend  Kind = "extend"  // ExtendTimeout
	Policy  Kind = "policy"  // UpdateNetworkPolicy
	Save    Kind = "save"    // Snapshot
	Make    Kind = "make"    // GetOrCreate of a new sandbox with OnCreate
	Remake  Kind = "remake"  // GetOrCreate of a sandbox whose files are gone
	Resume  Kind = "resume"  // GetOrCreate of a stopped sandbox with OnResume
	Fork    Kind = "fork"    // Fork
	Drive   Kind = "drive"   // GetOrCreateDrive, Fork and Delete of a drive
	Discard Kind = "discard" // Sandbox.Delete
	Drop    Kind = "drop"    // Client.Delete, by name
)

// What is the kind of a fault.
type What string

// These are the kinds of faults. The first ones affect a request or its response. The others
// affect the sandbox, or another client causes them, at the time of a request.
const (
	None     What = "nothing"
	Refuse   What = "refused"   // the client can't connect
	Throttle What = "throttled" // the response is 429
	Odd      What = "odd"       // the API does not get the request, and the response is 403 with HTML
	Lost     What = "lost"      // the API acts, and the connection breaks
	Gateway  What = "gateway"   // the API acts, and the response is 502
	Cut      What = "cut"       // the response breaks off
	Clean    What = "clean cut" // the response ends early, without an error
	Late     What = "late"      // half of the request arrives after its second attempt
	Page     What = "page"      // a gateway responds, before or after the API has acted
	Held     What = "held"      // the connection breaks at once, and the request arrives before the next one
	Double   What = "double"    // the request arrives twice, and the client gets the second response
	Crossed  What = "crossed"   // the API acts, and the client gets another command's response
	Missing  What = "missing"   // the file with the credentials is missing for a moment
	GiveUp   What = "given up"  // the caller's context ends

	Stopped What = "stopped" // another client stops the sandbox
	Expired What = "expired" // the session times out
	Crashed What = "crashed" // the machine dies
	Deleted What = "deleted" // another client deletes the sandbox
	Hooked  What = "hook"    // the sandbox is stopped, and OnResume returns an error like the API's
	Cleaned What = "cleaned" // another program empties /tmp
	Rival   What = "rival"   // another client makes the same call
)

// When is the time of a fault, relative to its request.
type When string

// These are the times of faults.
const (
	Before When = "before"
	Behind When = "behind"
	Within When = "within"
)

// Class selects requests.
type Class string

// These are the classes of requests.
const (
	Any     Class = "request"
	Cmd     Class = "start"  // starts of commands
	Logs    Class = "log"    // requests for output, including starts that stream it
	Look    Class = "look"   // lookups of commands
	Signal  Class = "signal" // signals to commands
	Stdin   Class = "input"  // input of commands
	Put     Class = "upload"
	Fetched Class = "download"
	Box     Class = "get" // lookups of sandboxes
	Born    Class = "create"
	Gone    Class = "delete"
	Creds   Class = "credentials"
	// Pause is the time when a FileWriter's first piece is in its temporary file, and the
	// caller has not yet written the rest. It is not a request.
	Pause Class = "pause"
)

var commands = []Kind{Run, Start, Fetch, Follow, Exec, Feed, Talk, Kill, Cancel, Keep, Shell}

var files = []Kind{Append, Upload, Appends, Write, Replace, Truncate, Remove, Rename, Copy, Sweep, Link, Read, Mkdir, Tree}

var lives = []Kind{Stop, Update, Extend, Policy, Save, Make, Remake, Resume, Fork, Drive, Discard, Drop}

// generalFaults are the faults that may happen in any step.
var generalFaults = []What{Refuse, Throttle, Odd, Lost, Gateway, Page, Cut, Missing, GiveUp}

// sandboxFaults are the faults of the sandbox that steps on commands and files use.
var sandboxFaults = []What{Stopped, Expired, Crashed, Deleted, Hooked}

// likely maps a kind of step to the faults that it is meant to test.
var likely = map[Kind][]Fault{
	Run:     {{What: Cut, On: Logs}, {What: Stopped, When: Within, On: Logs}, {What: Lost, On: Cmd}, {What: Crashed, When: Within, On: Logs}, {What: Page, When: Behind, On: Cmd}, {What: Crossed, On: Cmd}, {What: Double, On: Cmd}},
	Start:   {{What: Cut, On: Logs}, {What: Clean, On: Logs}, {What: Odd, On: Logs}, {What: Page, When: Behind, On: Cmd}, {What: Crossed, On: Cmd}},
	Fetch:   {{What: Clean, On: Logs}, {What: Clean, On: Logs}, {What: Cut, On: Logs}, {What: Odd, On: Look}},
	Follow:  {{What: Clean, On: Logs}, {What: Cut, On: Logs}, {What: Stopped, When: Within, On: Logs}},
	Feed:    {{What: Late, On: Put}, {What: Lost, On: Cmd}, {What: Stopped, When: Before, On: Cmd}},
	Exec:    {{What: Clean, On: Logs}, {What: Lost, On: Cmd}, {What: Cut, On: Look}, {What: Page, When: Behind, On: Cmd}, {What: Held, On: Cmd}},
	Talk:    {{What: Lost, On: Stdin}, {What: Gateway, On: Stdin}, {What: Page, On: Stdin}, {What: Double, On: Stdin}},
	Kill:    {{What: Lost, On: Signal}, {What: Gateway, On: Signal}, {What: Page, On: Signal}},
	Cancel:  {{What: GiveUp, When: Before, On: Cmd}, {What: GiveUp, When: Behind, On: Cmd}, {What: GiveUp, When: Within, On: Logs}},
	Keep:    {{What: Lost, On: Cmd}, {What: GiveUp, When: Behind, On: Cmd}},
	Append:  {{What: Missing, On: Creds}, {What: Missing, On: Creds}, {What: Lost, On: Cmd}, {What: Double, On: Cmd}, {What: Held, On: Cmd}},
	Upload:  {{What: Late, On: Put}, {What: Crashed, When: Before, On: Cmd}, {What: Cleaned, When: Before, On: Cmd}, {What: Page, When: Before, On: Put}},
	Write:   {{What: Late, On: Put}, {What: Crashed, When: Before, On: Put, Nth: 3}, {What: Crashed, When: Behind, On: Pause}, {What: Lost, On: Cmd}},
	Replace: {{What: Page, When: Before, On: Put}, {What: Late, On: Put}},
	Tree:    {{What: Page, When: Before, On: Put}, {What: Clean, On: Fetched}, {What: Lost, On: Any}},
	Read:    {{What: Clean, On: Fetched}, {What: Page, On: Fetched}, {What: Stopped, When: Before, On: Fetched}},
	Mkdir:   {{What: Lost, On: Any}, {What: Page, On: Any}},
	Rename:  {{What: Lost, On: Cmd}},
	Copy:    {{What: Lost, On: Cmd}},
	Save:    {{What: Lost, On: Any}, {What: Gateway, On: Any}},
	Make:    {{What: Lost, On: Born}, {What: Gateway, On: Born}, {What: Rival, When: Before, On: Born}, {What: Rival, When: Behind, On: Box}, {What: Page, On: Born}, {What: Held, On: Born}},
	Remake:  {{What: Rival, When: Behind, On: Box}, {What: Rival, When: Before, On: Gone}, {What: Lost, On: Gone}, {What: Rival, When: Before, On: Born}},
	Resume:  {{What: Hooked, When: Before, On: Any}, {What: Hooked, When: Before, On: Any}, {What: Lost, On: Box}},
	Fork:    {{What: Lost, On: Any}},
	Extend:  {{What: Lost, On: Any}},
	Drive:   {{What: Lost, On: Any}, {What: Page, On: Gone}},
	Discard: {{What: Rival, When: Behind, On: Gone}, {What: Lost, On: Gone}, {What: Page, On: Gone}},
	Drop:    {{What: Rival, When: Behind, On: Gone}, {What: Lost, On: Gone}, {What: Page, On: Gone}},
}

// pair is a combination of a kind of step and a fault.
type pair struct {
	kind  Kind
	fault Fault // the zero value stands for any fault
}

// pairs contains each kind of step with each of its likely faults.
var pairs = func() (list []pair) {
	for _, kind := range slices.Concat(commands, files, lives) {
		for _, f := range likely[kind] {
			list = append(list, pair{kind, f})
		}
		if len(likely[kind]) == 0 {
			list = append(list, pair{kind: kind})
		}
	}
	return list
}()

// Program returns the steps of a seed. Every second step is random. The others iterate over all
// pairs, in a new order each time, and the next seed continues the iteration. So the test
// certainly finds a bug that only one pair reveals.
func Program(seed uint64, length int) []Step {
	rng := rand.New(rand.NewPCG(seed, 17))
	steps := make([]Step, length)
	for i := range steps {
		if n := seed*uint64(len(steps)) + uint64(i); n%2 == 0 {
			steps[i] = step(rng, nthPair(n/2))
		} else {
			steps[i] = step(rng, randomPair(rng))
		}
	}
	return steps
}

// nthPair returns pair n of the iteration over all pairs.
func nthPair(n uint64) pair {
	size := uint64(len(pairs))
	order := rand.New(rand.NewPCG(n/size, 18)).Perm(len(pairs))
	return pairs[order[n%size]]
}

func pick[T any](rng *rand.Rand, of []T) T { return of[rng.IntN(len(of))] }

// randomPair returns a random kind of step with a random fault: a likely fault, a fault that
// ends the session, any fault, or none.
func randomPair(rng *rand.Rand) pair {
	of := pick(rng, [][]Kind{commands, commands, files, files, {Write}, lives})
	c := pair{kind: pick(rng, of)}
	switch chance := rng.IntN(10); {
	case chance < 1:
		c.fault = Fault{What: None, On: Any}
	case chance < 6 && len(likely[c.kind]) > 0:
		c.fault = pick(rng, likely[c.kind])
	case chance < 8 && !slices.Contains(lives, c.kind):
		c.fault = Fault{What: pick(rng, sandboxFaults), On: Any, Nth: earlyNumber(rng)}
	}
	return c
}

// earlyNumber returns a random number from 1 to 3, and small numbers more often.
func earlyNumber(rng *rand.Rand) int { return 1 + min(rng.IntN(3), rng.IntN(3)) }

// step returns a step for a pair. All other values are random.
func step(rng *rand.Rand, p pair) Step {
	s := Step{Kind: p.kind, File: rng.IntN(3), Size: 1 + rng.IntN(400)}
	f := p.fault
	if f == (Fault{}) {
		f = Fault{What: pick(rng, generalFaults), On: Any, Nth: earlyNumber(rng)}
	}
	if f.When == "" {
		f.When = pick(rng, []When{Before, Behind, Within})
	}
	f.Nth = max(f.Nth, 1)
	if f.What == Missing {
		f.On = Creds
	}
	f.At = rng.IntN(pick(rng, []int{100, 8 * s.Size})) // large outputs arrive in few records
	s.Fault = f
	return s
}

// Shrink removes all parts of a failing program that are not needed for its failure: first
// steps, then faults, then sizes. fails runs a program and reports whether it fails.
func Shrink(steps []Step, fails func([]Step) bool) []Step {
	for i := 0; i < len(steps); {
		shorter := append(append([]Step{}, steps[:i]...), steps[i+1:]...)
		if len(shorter) > 0 && fails(shorter) {
			steps = shorter
		} else {
			i++
		}
	}
	try := func(i int, change func(*Step)) {
		simpler := append([]Step{}, steps...)
		change(&simpler[i])
		if simpler[i] != steps[i] && fails(simpler) {
			steps = simpler
		}
	}
	for i := range steps {
		try(i, func(s *Step) { s.Fault = Fault{What: None} })
		try(i, func(s *Step) { s.Size = 1 })
		try(i, func(s *Step) { s.Fault.At = 0 })
	}
	return steps
}

// String describes the step.
func (s Step) String() string {
	text := fmt.Sprintf("%s (file %d, size %d)", s.Kind, s.File, s.Size)
	if f := s.Fault; f.What != None {
		text += fmt.Sprintf(", %s %s %s %d", f.What, f.When, f.On, f.Nth)
		if f.When == Within || f.What == Cut || f.What == Clean {
			text += fmt.Sprintf(" at %d", f.At)
		}
	}
	return text
}

// Describe returns a list of the steps.
func Describe(steps []Step) string {
	var b strings.Builder
	for i, s := range steps {
		fmt.Fprintf(&b, "%d: %s\n", i+1, s)
	}
	return b.String()
}
