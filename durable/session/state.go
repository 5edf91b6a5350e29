package session

import "slices"

// page is the response to the query for events: those from a number on.
type page struct {
	Events []stored `json:"events"`
	// Base is the first event that the workflow has. Those before it are in the
	// store, in the page that begins at Stored, unless that is -1.
	Base   int  `json:"base"`
	Stored int  `json:"stored"`
	Closed bool `json:"closed,omitempty"` // and there will be no more
	// Run is the run of the workflow that answers.
	Run string `json:"run,omitempty"`
}

func (s *run) page(from int) page {
	p := page{Base: s.Base, Stored: -1, Run: s.run}
	for _, base := range s.Pages {
		if base <= from && from < s.Base {
			p.Stored = base
		}
	}
	events := s.Events[min(max(from-s.Base, 0), len(s.Events)):]
	n := pageOf(events)
	p.Events, p.Closed = events[:n], s.closed && n == len(events)
	return p
}

// State is what a session is at the moment.
type State struct {
	// State is that of the last status event, and Error its error.
	State            string `json:"state"`
	Error            string `json:"error,omitempty"`
	SandboxID        string `json:"sandboxId,omitempty"`
	SessionID        string `json:"sessionId,omitempty"`
	StartedAt        Millis `json:"startedAt"`
	LastUse          Millis `json:"lastUse"`
	SandboxExpiresAt Millis `json:"sandboxExpiresAt,omitempty"`
	// HibernatesAt is when it hibernates unless it is used; 0 while it does not
	// run, or a command does.
	HibernatesAt Millis `json:"hibernatesAt,omitempty"`
	// Running is the command that runs, Queued how many wait.
	Running string `json:"running,omitempty"`
	Queued  int    `json:"queued"`
	Events  int    `json:"events"`
}

func (s *run) describe() State {
	d := State{StartedAt: millis(s.StartedAt), LastUse: millis(s.LastUse), Running: s.current, Queued: len(s.Queue), Events: s.Base + len(s.Events)}
	for _, e := range slices.Backward(s.Events) {
		if e.Event.Type == TypeStatus {
			d.State, d.Error = e.Event.State, e.Event.Error
			break
		}
	}
	if s.Sandbox != nil {
		d.SandboxID, d.SessionID = s.Sandbox.Options.Name, s.Sandbox.VM
		if s.Sandbox.VM != "" {
			d.SandboxExpiresAt = millis(s.Sandbox.ExpiresAt)
			if s.current == "" {
				d.HibernatesAt = millis(s.LastUse.Add(s.in.Policy.IdleAfter))
			}
		}
	}
	return d
}
