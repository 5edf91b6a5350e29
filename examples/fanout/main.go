// Fanout splits work over many forks of one prepared sandbox, a few at a time.
//
//	go run ./examples/fanout -forks 50 -parallel 10
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-vercel/sandbox"
)

const linesPerFork = 100

func main() {
	forks := flag.Int("forks", 50, "how many forks")
	parallel := flag.Int("parallel", 10, "how many of them at a time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, max(*forks, 1), max(*parallel, 1)); err != nil {
		stop()
		log.Fatal(err)
	}
}

func run(ctx context.Context, forks, parallel int) (err error) {
	began := time.Now()
	base, err := sandbox.Create(ctx, &sandbox.CreateOptions{Tags: map[string]string{"example": "fanout"}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, base.Delete(context.WithoutCancel(ctx), nil)) }()
	var numbers strings.Builder
	for i := range forks * linesPerFork {
		fmt.Fprintln(&numbers, i+1)
	}
	if err := base.WriteFiles(ctx, []sandbox.File{{Path: "numbers.txt", Content: []byte(numbers.String())}}, nil); err != nil {
		return err
	}
	if _, err := base.Stop(ctx, nil); err != nil { // waits until the files are saved for the forks, unlike Close
		return err
	}

	// The first failure cancels the others.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	slots := make(chan struct{}, parallel)
	sums := make([]int, forks)
	for i := range forks {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-slots }()
			sum, err := work(ctx, base.Name(), i)
			if err != nil {
				cancel(fmt.Errorf("fork %d: %w", i, err))
				return
			}
			sums[i] = sum
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	total := 0
	for _, sum := range sums {
		total += sum
	}
	fmt.Printf("%d forks, %d at a time, took %v; the sum is %d\n", forks, parallel, time.Since(began).Round(time.Millisecond), total)
	return nil
}

// work adds up one fork's share of the numbers.
func work(ctx context.Context, base string, i int) (sum int, err error) {
	fork, err := sandbox.Fork(ctx, base, &sandbox.CreateOptions{Ephemeral: true})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, fork.Delete(context.WithoutCancel(ctx), nil)) }()

	share := fmt.Sprintf("NR > %d && NR <= %d { sum += $1 } END { print sum }", i*linesPerFork, (i+1)*linesPerFork)
	done, err := fork.RunCommand(ctx, "awk", []string{share, "numbers.txt"}, &sandbox.CommandOptions{KillOnCancel: true})
	if err != nil {
		return 0, err
	}
	out, err := done.Stdout(ctx)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(out))
}
