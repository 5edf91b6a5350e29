package sandboxtest

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"

	"github.com/go-vercel/sandbox/sandboxtest/internal/firewall"
)

// Enforcement reports which parts of the platform are real on this machine. The
// others are accepted by the API, but have no effect.
type Enforcement struct {
	// Files: what sandboxes write is visible to them alone and never reaches
	// the host's files.
	Files bool
	// Users: sandboxes have root and users, with sudo and useradd. Otherwise
	// there is one user, and Sudo makes it root in name only.
	Users bool
	// Policies: network policies are enforced, including changes while a
	// session runs. Otherwise only a policy deny-all that a session starts with
	// is enforced, in [Namespace] mode.
	Policies bool
	// Missing is why something of these is not enforced, and what adds it, a line for
	// each; nil if everything is.
	Missing error
	// Limits: a sandbox has the memory of its virtual CPUs, 2048 MB each, and
	// 4096 processes at most. It requires [Namespace] mode, and a control group of
	// version 2 with the controllers memory and pids that is delegated to the
	// emulator's user, as in a user's session of systemd. Otherwise sandboxes may
	// use all of the machine's.
	Limits bool
}

// Enforces reports which parts of the platform are real on this machine.
func (s *Server) Enforces() Enforcement {
	e := Enforcement{
		Files:    s.Mode() == Namespace,
		Users:    s.Mode() == Namespace && !s.host.Rootless(),
		Policies: s.host.Gated(),
		Limits:   s.host.Limited(),
	}
	var missing []error
	if !e.Files {
		why, remedy := shortly(s.host.Reasons()), namespacesRemedy()
		if s.opts.Mode == Folder {
			why, remedy = "folder mode was asked for", "ask for no mode"
		}
		missing = append(missing, lacks("commands are ordinary processes of this machine ("+why+")", remedy))
	}
	if !e.Users {
		missing = append(missing, lacks("sandboxes have one user only, and no sudo", "run the emulator as root on Linux, with namespaces"))
	}
	if !e.Policies {
		remedy := tunRemedy()
		if !e.Files {
			remedy = "namespaces first"
		}
		missing = append(missing, lacks("network policies have no effect, for want of a network in each sandbox", remedy))
	}
	e.Missing = errors.Join(missing...)
	return e
}

// maxProcesses is what a sandbox may have at a time, where that is limited: more
// than tests need, and too few for a fork bomb to take the machine.
const maxProcesses = 4096

// HostAddress returns the host name or address by which commands in sandboxes,
// git sources and tarball sources reach servers on the loopback interface of
// this machine: [HostName], or 127.0.0.1 in [Folder] mode.
func (s *Server) HostAddress() string {
	if s.Mode() == Folder {
		return "127.0.0.1"
	}
	return HostName
}

// whyFolder says, in two lines, why Auto has ended in folder mode where namespaces
// could be had, and what to do about it; nil elsewhere.
func (s *Server) whyFolder() []string {
	if s.opts.Mode != Auto || s.Mode() != Folder || runtime.GOOS != "linux" || s.host.Reasons() == nil {
		return nil
	}
	return []string{
		"sandboxes run as ordinary processes on this machine's own files (folder mode): " + shortly(s.host.Reasons()),
		"to give them namespaces: " + namespacesRemedy(),
	}
}

// warnings are what was said once.
type warnings struct{ policy, oldClient sync.Once }

// enforceable is an error, or a warning, for a mode of policies that does not
// hold here even for a session that starts with it.
func (s *Server) enforceable(mode string) error {
	return s.unenforced(s.host.Gated() || mode == firewall.AllowAll || mode == firewall.DenyAll && s.Mode() == Namespace)
}

// unenforced warns, once, of a policy that does not hold here, or refuses it.
// holds says that it does.
func (s *Server) unenforced(holds bool) error {
	why := s.Enforces().Missing
	switch {
	case holds:
		return nil
	case s.opts.RefuseUnenforced:
		return badRequest("The emulator can't enforce this network policy here: %s.",
			strings.ReplaceAll(fmt.Sprint(why), "\n", "; "))
	}
	s.warned.policy.Do(func() {
		s.opts.Logger.Warn("a network policy is accepted and not enforced", "reason", why)
	})
	return nil
}
