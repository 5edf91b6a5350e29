package sandboxtest

import (
	"errors"
	"runtime"
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
	// Missing has a line for each part that is not enforced: why, and how to enable it. It
	// is nil if all parts are enforced.
	Missing error
}

// Enforces reports which parts of the platform are real on this machine.
func (s *Server) Enforces() Enforcement {
	e := Enforcement{
		Files:    s.Mode() == Namespace,
		Users:    s.Mode() == Namespace && !s.store.Host.Rootless(),
		Policies: s.store.Host.Gated(),
	}
	var missing []error
	if !e.Files {
		why, remedy := joinReasons(s.store.Host.Reasons()), namespacesRemedy()
		if s.opts.Mode == Folder {
			why, remedy = "folder mode was requested", "request no mode"
		}
		missing = append(missing, missingPart("commands are ordinary processes of this machine ("+why+")", remedy))
	}
	if !e.Users {
		missing = append(missing, missingPart("sandboxes have one user only, and no sudo", "run the emulator as root on Linux, with namespaces"))
	}
	if !e.Policies {
		remedy := tunRemedy()
		if !e.Files {
			remedy = "add namespaces first"
		}
		missing = append(missing, missingPart("network policies have no effect, because sandboxes have no network of their own", remedy))
	}
	e.Missing = errors.Join(missing...)
	return e
}

// HostAddress returns the host name or address by which commands in sandboxes,
// git sources and tarball sources reach servers on the loopback interface of
// this machine: [HostName], or 127.0.0.1 in [Folder] mode.
func (s *Server) HostAddress() string {
	if s.Mode() == Folder {
		return "127.0.0.1"
	}
	return HostName
}

// whyFolder explains, in two lines, why Auto has chosen folder mode on a system with
// namespaces, and what to do about it. It returns nil elsewhere.
func (s *Server) whyFolder() []string {
	if s.opts.Mode != Auto || s.Mode() != Folder || runtime.GOOS != "linux" || s.store.Host.Reasons() == nil {
		return nil
	}
	return []string{
		"sandboxes run as ordinary processes on this machine's own files (folder mode): " + joinReasons(s.store.Host.Reasons()),
		"to give them namespaces: " + namespacesRemedy(),
	}
}
