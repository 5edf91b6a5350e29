package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-vercel/sandbox/proxy/proxytest"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
	"github.com/go-vercel/sandbox/sandboxtest/internal/firewall"
	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
)

// authorityFile keeps the authority in Options.Dir from one server to the next: programs
// that were installed under an earlier server may have copied its certificate.
const authorityFile = "authority.pem"

// openAuthority reads the authority from a directory, or creates one and stores it there.
// The caller has locked the directory. If dir is empty, the authority is not stored.
func openAuthority(dir string) (*firewall.Authority, error) {
	if dir == "" {
		a, _, err := firewall.NewAuthority()
		return a, err
	}
	name := filepath.Join(dir, authorityFile)
	data, err := os.ReadFile(name)
	if err == nil {
		return firewall.ParseAuthority(name, data)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	a, data, err := firewall.NewAuthority()
	if err != nil {
		return nil, err
	}
	return a, box.WriteFile(name, data, true)
}

// openFirewall gives a firewall to a machine that is about to be created. Where no firewall
// is possible, the policy deny-all can still create the machine without a network.
func (sess *Session) openFirewall(config *backend.Config, set *Settings) error {
	st, sb := sess.sb.st, sess.sb
	e, err := firewall.ParsePolicy(set.PolicyRequest)
	if err != nil {
		return err
	}
	if !st.Host.Gated() {
		sess.offline = e.Mode == firewall.DenyAll && st.Host.Mode() == box.Namespace
		config.DenyNetwork = sess.offline
		return st.Enforceable(e.Mode)
	}
	sess.firewall = st.site.New(st.ctx, proxytest.Claims{
		Issuer: "https://oidc.vercel.com/emulator", TeamID: st.opts.Team, ProjectID: sb.rec.Key.Project, SandboxID: sess.rec.ID, SandboxName: sb.rec.Key.Name,
	}, e)
	config.Firewall = sess.firewall
	return nil
}

// closeFirewall closes the firewall after the machine has ended.
func (sess *Session) closeFirewall() {
	sess.firewall.Close()
}

// enforce applies another policy to a running machine, as far as possible. Unless the
// policy allows everything, it closes all connections, and programs have to connect again.
func (sess *Session) enforce(machine *box.Box, raw []byte) error {
	e, err := firewall.ParsePolicy(raw)
	if err != nil {
		return err
	}
	if sess.firewall == nil {
		return sess.sb.st.requireEnforced(!sess.offline && e.Mode == firewall.AllowAll || sess.offline && e.Mode == firewall.DenyAll)
	}
	sess.firewall.Enforce(e)
	if e.Mode != firewall.AllowAll {
		machine.Disconnect()
	}
	return nil
}

// Enforceable checks that a policy of a mode has an effect on a session that starts with
// it. If it has none on this machine, Enforceable warns or returns an error.
func (st *Store) Enforceable(mode string) error {
	return st.requireEnforced(st.Host.Gated() || mode == firewall.AllowAll || mode == firewall.DenyAll && st.Host.Mode() == box.Namespace)
}

// requireEnforced does nothing if a policy is enforced. Otherwise it warns once, or
// returns an error if Options.RefuseUnenforced is set.
func (st *Store) requireEnforced(enforced bool) error {
	why := st.opts.Missing()
	switch {
	case enforced:
		return nil
	case st.opts.RefuseUnenforced:
		return reply.BadRequest("The emulator can't enforce this network policy here: %s.",
			strings.ReplaceAll(fmt.Sprint(why), "\n", "; "))
	}
	st.warnUnenforced.Do(func() {
		st.opts.Log.Warn("a network policy is accepted and not enforced", "reason", why)
	})
	return nil
}
