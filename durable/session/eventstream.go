package session

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// pingInterval is the interval of pings in a silent stream. They keep proxies from closing it.
const pingInterval = 15 * time.Second

// stream writes a session's events until the session ends or the client disconnects.
func (h *handler) stream(w http.ResponseWriter, r *http.Request, id string, at Cursor) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	sse := strings.Contains(r.Header.Get("Accept"), "text/event-stream")
	head := w.Header()
	head.Set("Content-Type", "application/x-ndjson")
	if sse {
		head.Set("Content-Type", "text/event-stream")
	}
	head.Set("X-Workflow-Run-Id", id)
	head.Set("Cache-Control", "no-cache, no-transform")
	head.Set("X-Accel-Buffering", "no")
	to := eventWriter{w, http.NewResponseController(w), sse}
	w.WriteHeader(http.StatusOK)
	_ = to.flusher.Flush()

	type item struct {
		e   Event
		err error
	}
	items := make(chan item)
	go func() {
		defer close(items)
		for e, err := range h.c.Events(ctx, id, at) {
			select {
			case items <- item{e, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	ping := time.NewTicker(pingInterval)
	defer ping.Stop()
	for {
		var err error
		select {
		case it, more := <-items:
			if !more {
				return
			}
			if it.err != nil {
				if ctx.Err() == nil {
					h.opts.Logger.WarnContext(ctx, "a stream of events broke", "session", id, "error", it.err)
				}
				return // the client reconnects
			}
			data, jsonErr := json.Marshal(it.e)
			if err = jsonErr; err == nil {
				err = to.write(it.e.Cursor.String(), data)
			}
		case <-ping.C:
			err = to.write("", []byte(`{"type":"ping"}`))
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// eventWriter writes events as lines of JSON, or as server-sent events.
type eventWriter struct {
	w       http.ResponseWriter
	flusher *http.ResponseController
	sse     bool
}

func (e eventWriter) write(cursor string, data []byte) error {
	var err error
	switch {
	case !e.sse:
		_, err = e.w.Write(append(data, '\n'))
	case cursor == "":
		_, err = fmt.Fprintf(e.w, ": %s\n\n", data)
	default:
		_, err = fmt.Fprintf(e.w, "id: %s\ndata: %s\n\n", cursor, data)
	}
	if err != nil {
		return err
	}
	return e.flusher.Flush()
}
