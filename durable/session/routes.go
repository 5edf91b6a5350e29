package session

import (
	"context"
	"errors"
	"net/http"

	"github.com/go-vercel/sandbox"
)

func (h *handler) start(w http.ResponseWriter, r *http.Request) {
	b, ok := h.readRequest(w, r, false)
	if !ok {
		return
	}
	at, err := ParseCursor(b.Cursor)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), engineTimeout)
	defer cancel()
	id := b.RunID
	if id != "" {
		s, err := h.c.State(ctx, id)
		switch {
		case err == nil:
			w.Header().Set("X-Workflow-Reconnected", "true")
			if at, err = h.startCursor(ctx, b, at, s); err != nil {
				h.fail(w, r, err)
				return
			}
		case errors.Is(err, ErrNoSession):
			id, at = "", Cursor{} // start a new session
			if !h.allowed(w, r, "") {
				return
			}
		default:
			h.fail(w, r, err)
			return
		}
	}
	if id == "" {
		if id, ok = h.startNew(ctx, w, r, b.Title); !ok {
			return
		}
	}
	h.stream(w, r, id, at)
}

// startCursor returns where a stream begins: at the cursor, or at the last lines if the
// request has lines but no cursor.
func (h *handler) startCursor(ctx context.Context, b body, at Cursor, s *State) (Cursor, error) {
	if at.next() > s.Events && s.State != StateTerminated {
		return at, beyondEnd(at, s.Events)
	}
	if b.Cursor == "" && b.Lines != nil {
		return h.c.Tail(ctx, b.RunID, *b.Lines)
	}
	if at.At > 0 && s.State != StateTerminated {
		return at, h.c.checkCursor(ctx, b.RunID, at)
	}
	return at, nil
}

// startNew starts a session. If it returns false, it has responded.
func (h *handler) startNew(ctx context.Context, w http.ResponseWriter, r *http.Request, title string) (id string, ok bool) {
	id, err := h.c.Start(ctx, &StartOptions{Title: title})
	if err != nil {
		h.fail(w, r, err)
		return "", false
	}
	if h.opts.Started == nil {
		return id, true
	}
	if err := h.opts.Started(r, id); err != nil {
		if err := h.c.Destroy(ctx, id, &DestroyOptions{DeleteSandbox: true, RemoveOutput: true}); err != nil {
			h.opts.Logger.WarnContext(r.Context(), "could not destroy an unused session", "session", id, "error", err)
		}
		h.refuse(w, http.StatusForbidden, err.Error())
		return "", false
	}
	return id, true
}

func (h *handler) events(w http.ResponseWriter, r *http.Request) {
	b, ok := h.readRequest(w, r, true)
	if !ok {
		return
	}
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		b.Cursor = last // what EventSource sends when it connects again
	}
	ctx, cancel := context.WithTimeout(r.Context(), engineTimeout)
	defer cancel()
	at, err := ParseCursor(b.Cursor)
	var s *State
	if err == nil {
		s, err = h.c.State(ctx, b.RunID)
	}
	if err == nil {
		at, err = h.startCursor(ctx, b, at, s)
	}
	if err != nil {
		h.fail(w, r, err)
		return
	}
	h.stream(w, r, b.RunID, at)
}

func (h *handler) session(w http.ResponseWriter, r *http.Request) {
	b, ok := h.readRequest(w, r, true)
	if !ok {
		return
	}
	s, err := h.c.State(r.Context(), b.RunID)
	h.finish(w, r, s, err)
}

func (h *handler) command(w http.ResponseWriter, r *http.Request) {
	b, ok := h.readRequest(w, r, true)
	if !ok {
		return
	}
	switch b.Command {
	case "":
		h.refuse(w, http.StatusBadRequest, "command is missing")
		return
	case "/destroy": // the guide's client sends this
		h.finish(w, r, map[string]any{"ok": true}, h.c.Destroy(r.Context(), b.RunID, nil))
		return
	}
	id, err := h.c.Command(r.Context(), b.RunID, Command{Command: b.Command, Key: b.Key, Secret: b.Secret})
	h.finish(w, r, map[string]any{"ok": true, "id": id}, err)
}

func (h *handler) interrupt(w http.ResponseWriter, r *http.Request) {
	b, ok := h.readRequest(w, r, true)
	if !ok {
		return
	}
	sig := sandbox.SIGINT
	if b.Signal != "" {
		var err error
		if sig, err = sandbox.ParseSignal(b.Signal); err != nil {
			h.fail(w, r, err)
			return
		}
	}
	taken, err := h.c.interrupt(r.Context(), b.RunID, b.ID, sig)
	h.finish(w, r, map[string]any{"ok": true, "interrupted": taken}, err)
}

func (h *handler) destroy(w http.ResponseWriter, r *http.Request) {
	if b, ok := h.readRequest(w, r, true); ok {
		h.finish(w, r, map[string]any{"ok": true}, h.c.Destroy(r.Context(), b.RunID, &b.DestroyOptions))
	}
}
