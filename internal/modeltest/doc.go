// Package modeltest drives random programs against the emulator under random
// faults, and judges what the client says by what the sandbox itself has
// recorded: each command appends its name to a journal there, and each file has
// a history of what it may hold.
//
// A program follows from its seed. One that fails is shrunk to the steps that it
// takes.
package modeltest

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Step is one call under one fault.
type Step struct {
	Kind  Kind
	Fault Fault
	// At is where the fault strikes, in bytes of a stream; Size is how much the
	// step writes or prints.
	At, Size int
}

// Kind is what a step does.
type Kind string

// The kinds of steps.
const (
	Run     Kind = "run"     // RunCommand with its output kept
	Start   Kind = "start"   // StartCommand with a writer, and Wait
	Fetch   Kind = "fetch"   // the output of a command that has ended
	Exec    Kind = "exec"    // Cmd.Output
	Append  Kind = "append"  // FileSystem.AppendFile
	Write   Kind = "write"   // a FileWriter of several pieces
	Kill    Kind = "kill"    // one SIGINT to a command that counts them
	Replace Kind = "replace" // GetOrCreate of a sandbox whose files are gone, by two
	Resume  Kind = "resume"  // GetOrCreate whose OnResume fails as the API would
)

// Fault is what goes wrong.
type Fault string

// The faults.
const (
	None    Fault = "none"
	Cut     Fault = "cut"      // the stream breaks
	Clean   Fault = "clean"    // the log ends without an error
	Lost    Fault = "lost"     // the request acts and its answer is lost
	Stop    Fault = "stop"     // the session is stopped meanwhile
	Late    Fault = "late"     // a part of the first attempt arrives behind the second
	Missing Fault = "missing"  // an error of the network that reads like a missing file
	Held    Fault = "held"     // the slower caller's delete is held up
	Hook    Fault = "hook err" // the hook says that files are gone, of another sandbox
)

var faultsOf = map[Kind][]Fault{
	Run:     {None, Cut, Lost, Stop},
	Start:   {None, Cut, Clean, Lost},
	Fetch:   {None, Cut, Clean},
	Exec:    {None, Cut, Clean},
	Append:  {None, Lost, Missing},
	Write:   {None, Late, Stop},
	Kill:    {None, Lost},
	Replace: {None, Held},
	Resume:  {None, Hook},
}

var kinds = []Kind{Run, Start, Fetch, Exec, Append, Write, Kill, Replace, Resume}

// Program makes the steps of a seed.
func Program(seed uint64, length int) []Step {
	rng := rand.New(rand.NewPCG(seed, 17))
	steps := make([]Step, length)
	for i := range steps {
		kind := kinds[rng.IntN(len(kinds))]
		faults := faultsOf[kind]
		size := 1 + rng.IntN(400)
		steps[i] = Step{Kind: kind, Fault: faults[rng.IntN(len(faults))], At: rng.IntN(8 * size), Size: size}
	}
	return steps
}

// Shrink leaves out of a failing program what it fails without. Fails runs a
// program.
func Shrink(steps []Step, fails func([]Step) bool) []Step {
	for i := 0; i < len(steps); {
		shorter := append(append([]Step{}, steps[:i]...), steps[i+1:]...)
		if len(shorter) > 0 && fails(shorter) {
			steps = shorter
		} else {
			i++
		}
	}
	return steps
}

// Describe lists the steps.
func Describe(steps []Step) string {
	var b strings.Builder
	for i, s := range steps {
		fmt.Fprintf(&b, "%d: %s, %s at %d, size %d\n", i+1, s.Kind, s.Fault, s.At, s.Size)
	}
	return b.String()
}
