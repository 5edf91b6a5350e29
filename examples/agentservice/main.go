// Agentservice lets many users talk to an agent over HTTP, each chat with a
// sandbox of its own. What the agent does arrives as server-sent events. A user
// who leaves ends the work, and a chat that is silent sleeps until the next turn.
//
//	go run ./examples/agentservice
//	curl -N -H 'Authorization: Bearer alice-s-token' -d 'uname -a' localhost:8080/first
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/agent"
)

// tokens are those of the users. Yours come from your login.
var tokens = map[string]string{"alice-s-token": "alice", "bob-s-token": "bob"}

func main() {
	address := flag.String("addr", "127.0.0.1:8080", "the address to listen on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *address)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, address string) (err error) {
	client, err := sandbox.DefaultClient()
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	s := newService(client)
	// Turns end with ctx, and then the sandboxes are stopped. Their files stay.
	server := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	go func() { _ = server.Serve(l) }() // ends with Shutdown
	defer func() {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, server.Shutdown(late), s.conversations.Close(late))
	}()
	fmt.Println("Listening on", l.Addr())
	<-ctx.Done()
	return nil
}

type service struct {
	conversations *agent.Conversations
	mu            sync.Mutex
	turns         map[string]chan struct{} // of each chat; closed when it is over
}

func newService(client *sandbox.Client) *service {
	return &service{turns: map[string]chan struct{}{}, conversations: agent.NewConversations(client, &agent.ConversationsOptions{
		Prefix: "chat-", Idle: time.Minute, MaxRunning: 100,
		Create: func(string) *sandbox.CreateOptions {
			return &sandbox.CreateOptions{Timeout: 10 * time.Minute, NetworkPolicy: sandbox.DenyAll()}
		},
	})}
}

// ServeHTTP is one turn: the path names the chat, and the body is what the user
// says.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, ok := tokens[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	if !ok {
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
	if err != nil {
		http.Error(w, "that is too long", http.StatusRequestEntityTooLarge)
		return
	}
	// The user is part of the name, so that each gets only their own sandbox.
	chat := user + r.URL.Path
	done, err := s.begin(r.Context(), chat)
	if err != nil {
		return // the user has left
	}
	defer done()
	w.Header().Set("Content-Type", "text/event-stream")
	events := &stream{w: w}
	tools := agent.ForConversation(s.conversations, chat, &agent.Options{
		Limits:   agent.Limits{Calls: 20},
		OnOutput: func(_ agent.Call, data []byte) { events.send("output", string(data)) },
	})
	defer tools.Close()
	answer, err := turn(r.Context(), tools, string(text), events)
	switch {
	case r.Context().Err() != nil: // the user has left, or the service ends
	case errors.Is(err, agent.ErrLimit):
		events.send("error", "that took too many steps")
	case err != nil:
		log.Printf("chat %q: %v", chat, err) //nolint:gosec // quoted, and not for the user
		events.send("error", "something went wrong")
	default:
		events.send("answer", answer)
	}
}

// begin waits until the chat's other turns are over.
func (s *service) begin(ctx context.Context, chat string) (done func(), err error) {
	for {
		s.mu.Lock()
		other, busy := s.turns[chat]
		if !busy {
			mine := make(chan struct{})
			s.turns[chat] = mine
			s.mu.Unlock()
			return func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				delete(s.turns, chat)
				close(mine)
			}, nil
		}
		s.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// turn lets the model call tools until it has an answer. The end of ctx ends
// what runs in the sandbox.
func turn(ctx context.Context, tools *agent.Toolset, text string, events *stream) (string, error) {
	seen := ""
	for step := 0; ; step++ {
		tool, args := model(step, text)
		if tool == "" {
			return seen, nil
		}
		events.send("call", tool)
		arguments, err := json.Marshal(args)
		if err != nil {
			return "", err
		}
		result, err := tools.Call(ctx, tool, arguments)
		if err != nil { // the model can't mend it
			return "", err
		}
		seen = result.Text // failed or not, the model reads it and goes on
	}
}

// model stands in for a language model: it does what the user says.
func model(step int, text string) (tool string, args map[string]any) {
	return []string{"bash", ""}[step], map[string]any{"command": text}
}

// stream sends events. What a sandbox writes is hostile: as JSON it stays within
// its event.
type stream struct {
	mu sync.Mutex
	w  http.ResponseWriter
}

func (s *stream) send(event, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, _ := json.Marshal(text) // of a string, which does not fail
	fmt.Fprintf(s.w, "event: %s\ndata: %s\n\n", event, data)
	_ = http.NewResponseController(s.w).Flush() // a user who has left ends the context
}
