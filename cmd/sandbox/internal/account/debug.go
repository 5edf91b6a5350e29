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

// eventPrinter prints the client's events for --debug: a line with ">" at the start of an
// event and one with "<" at its end, indented by the event's depth. It omits operations,
// because the requests of an operation say the same.
type eventPrinter struct {
	mu sync.Mutex
	w  io.Writer
}

type depthKey struct{}

func (l *eventPrinter) Begin(ctx context.Context, e observe.Event) context.Context {
	if e.Kind == observe.Operation {
		return ctx
	}
	depth, _ := ctx.Value(depthKey{}).(int)
	l.print(depth, '>', e)
	return context.WithValue(ctx, depthKey{}, depth+1)
}

func (l *eventPrinter) End(ctx context.Context, e observe.Event) {
	if e.Kind == observe.Operation {
		return
	}
	depth, _ := ctx.Value(depthKey{}).(int)
	l.print(depth-1, '<', e)
}

func (l *eventPrinter) print(depth int, mark rune, e observe.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(l.w, "%s %s%c %v\n", time.Now().Format("15:04:05.000"), strings.Repeat("  ", depth), mark, e)
}
