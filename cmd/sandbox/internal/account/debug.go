package account

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/go-vercel/sandbox/observe"
)

// events writes what the client does, for --debug: a line when something begins,
// with ">", and one when it ends, with "<", further to the right the more it is
// part of. Operations are left out, whose requests say the same.
type events struct {
	mu sync.Mutex
	w  io.Writer
}

type depthKey struct{}

func (l *events) Begin(ctx context.Context, e observe.Event) context.Context {
	if e.Kind == observe.Operation {
		return ctx
	}
	depth, _ := ctx.Value(depthKey{}).(int)
	l.line(depth, '>', e)
	return context.WithValue(ctx, depthKey{}, depth+1)
}

func (l *events) End(ctx context.Context, e observe.Event) {
	if e.Kind == observe.Operation {
		return
	}
	depth, _ := ctx.Value(depthKey{}).(int)
	l.line(depth-1, '<', e)
}

func (l *events) line(depth int, mark rune, e observe.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(l.w, "%s %s%c %v\n", time.Now().Format("15:04:05.000"), strings.Repeat("  ", depth), mark, e)
}
