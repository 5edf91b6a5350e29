// Package faults has faults that lint finds, each on its own line.
package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"
)

func never() {} // want: is not used

type counter struct {
	sync.Mutex
	count int
	spare int // want: is not used
}

func (c counter) value() int { return c.count } // want: passes lock by value

// ErrGone is returned by Faults.
var ErrGone = errors.New("It is gone.") // want: should not be capitalized

func Bare() {} // want: has no comment

// Faults has most of them.
func Faults(ctx context.Context, list []string, f *os.File) error {
	f.Sync()       // want: is not checked
	a := len(list) // want: ineffectual
	a = cap(list)  //
	fmt.Println(a)
	fmt.Printf("%d\n", "text") // want: wrong type
	for i := 0; i < 3; i++ {   // want: range over int
		list[i] = strings.TrimLeft(list[i], "aab") // want: duplicate characters
	}
	ctx, _ = context.WithTimeout(ctx, 1)  // want: cancel function
	var pattern = regexp.MustCompile("(") // want: missing closing
	if pattern.MatchString("x") == true { // want: omit comparison
		time.Sleep(5) // want: probably a bug
	}
	c := &counter{}
	if c.value() > 0 {
		return fmt.Errorf("again: %v", ErrGone) // want: non-wrapping
	}
	_ = strings.Title("a") // want: deprecated
	var m map[string]int
	m["a"] = 1 // want: nil map
	x := c.count
	x = x      // want: self-assignment
	if x < 0 { // want: empty branch
	}
	<-ctx.Done()
	return nil
}
