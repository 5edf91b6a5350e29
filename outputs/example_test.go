package outputs_test

import (
	"fmt"
	"os"

	"github.com/go-vercel/sandbox/outputs"
)

// A command's error messages are often at its end: give a Tail to it as its
// Stderr.
func ExampleTail() {
	tail := &outputs.Tail{Max: 12}
	for i := range 1000 {
		fmt.Fprintln(tail, "step", i)
	}
	fmt.Printf("%q of %d bytes\n", tail.String(), tail.Total())
	// Output: "98\nstep 999\n" of 8890 bytes
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
