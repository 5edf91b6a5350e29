package outputs_test

import (
	"fmt"
	"io"
	"os"

	"github.com/go-vercel/sandbox/outputs"
)

// Error messages are often at the end of a command's output: use a Tail as its Stderr.
func ExampleTail() {
	tail := &outputs.Tail{Max: 12}
	for i := range 1000 {
		fmt.Fprintln(tail, "step", i)
	}
	fmt.Printf("%q of %d bytes\n", tail.String(), tail.Total())
	// Output: "98\nstep 999\n" of 8890 bytes
}

// Show a command's output while it runs, and keep it for an error message: use a writer
// like this as its Stdout and Stderr.
func ExampleHeadTail() {
	kept := &outputs.HeadTail{Max: 7}
	both := io.MultiWriter(os.Stdout, kept)
	for i := range 4 {
		fmt.Fprintln(both, "step", i)
	}
	fmt.Printf("%q\n", kept)
	// Output:
	// step 0
	// step 1
	// step 2
	// step 3
	// "step 0\n\n... omitting 14 bytes ...\nstep 3\n"
}

func ExampleLimit() {
	w := outputs.Limit(os.Stdout, 5)
	_, err := fmt.Fprint(w, "much\noutput\n")
	fmt.Println(err)
	// Output:
	// much
	// outputs: output limit exceeded: more than 5 bytes
}

func ExampleLines() {
	lines := outputs.NewLines(os.Stdout)
	web, db := lines.Prefix("web | "), lines.Prefix("db  | ")
	fmt.Fprint(web, "listening on ")
	fmt.Fprint(db, "ready\n")
	fmt.Fprint(web, "port 3000\nbye")
	_, _ = web.Close(), db.Close()
	// Output:
	// db  | ready
	// web | listening on port 3000
	// web | bye
}
