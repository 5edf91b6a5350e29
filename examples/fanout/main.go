// Fanout splits work into shards, each in a sandbox of its own that is made from
// one snapshot, some at a time. A shard whose machine is lost runs again in another
// one, and rate limits are waited for by the client.
//
//	go run -C examples/fanout . -shards 20 -parallel 8
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
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/go-vercel/sandbox"
)

const (
	linesPerShard = 100
	// attempts is how many machines a shard may lose, and one more.
	attempts = 3
)

func main() {
	shards := flag.Int("shards", 20, "how many shards")
	parallel := flag.Int("parallel", 8, "how many of them at a time")
	lose := flag.Int("lose", -1, "the shard whose first machine is stopped under it, to see that it runs again")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, max(*shards, 1), max(*parallel, 1), *lose); err != nil {
		stop()
		log.Fatal(err)
	}
}

func run(ctx context.Context, shards, parallel, lose int) (err error) {
	began := time.Now()
	snapshot, err := prepare(ctx, shards)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, snapshot.Delete(context.WithoutCancel(ctx))) }()

	var lost atomic.Int64
	sums := make([]int, shards)
	group, ctx := errgroup.WithContext(ctx) // the first failure cancels the others
	group.SetLimit(parallel)
	for i := range shards {
		group.Go(func() error {
			for attempt := 1; ; attempt++ {
				sum, err := shard(ctx, snapshot.ID(), i, i == lose && attempt == 1)
				if err == nil {
					sums[i] = sum
					return nil
				}
				if !machineLost(err) || attempt == attempts {
					return fmt.Errorf("shard %d, attempt %d: %w", i, attempt, err)
				}
				lost.Add(1)
			}
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}

	total := 0
	for _, sum := range sums {
		total += sum
	}
	fmt.Printf("%d shards, %d at a time, machines lost: %d, took %v; the sum is %d\n",
		shards, parallel, lost.Load(), time.Since(began).Round(time.Millisecond), total)
	return nil
}

// prepare returns a snapshot with the files that every shard needs.
func prepare(ctx context.Context, shards int) (_ *sandbox.Snapshot, err error) {
	base, err := sandbox.Create(ctx, &sandbox.CreateOptions{Tags: map[string]string{"example": "fanout"}})
	if err != nil {
		return nil, err
	}
	// The snapshot outlives it.
	defer func() { err = errors.Join(err, base.Delete(context.WithoutCancel(ctx), nil)) }()
	var numbers strings.Builder
	for i := range shards * linesPerShard {
		fmt.Fprintln(&numbers, i+1)
	}
	if err := base.WriteFiles(ctx, []sandbox.File{{Path: "numbers.txt", Content: []byte(numbers.String())}}, nil); err != nil {
		return nil, err
	}
	return base.Snapshot(ctx, nil) // which ends the session
}

// shard adds up its part of the numbers. It may run again: what it does, it does in
// its own sandbox.
func shard(ctx context.Context, snapshot string, i int, lose bool) (sum int, err error) {
	sb, err := sandbox.Create(ctx, &sandbox.CreateOptions{Source: sandbox.SnapshotSource{SnapshotID: snapshot}, Ephemeral: true})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, sb.Delete(context.WithoutCancel(ctx), nil)) }()
	if lose {
		if _, err := sb.Stop(ctx, nil); err != nil {
			return 0, err
		}
	}

	part := fmt.Sprintf("NR > %d && NR <= %d { sum += $1 } END { print sum }", i*linesPerShard, (i+1)*linesPerShard)
	// A call on the sandbox would start it again, from the snapshot and without what
	// this shard has done. One on the session fails when its machine has ended.
	done, err := sb.CurrentSession().RunCommand(ctx, "awk", []string{part, "numbers.txt"}, &sandbox.CommandOptions{KillOnCancel: true})
	if err != nil {
		return 0, err
	}
	out, err := done.Stdout(ctx)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(out))
}

// machineLost reports whether err says that the machine has ended under a command,
// or is gone, or that the output broke off for good.
func machineLost(err error) bool {
	_, broke := errors.AsType[*sandbox.StreamError](err)
	return broke || errors.Is(err, sandbox.ErrStopped) || errors.Is(err, sandbox.ErrNotFound)
}
