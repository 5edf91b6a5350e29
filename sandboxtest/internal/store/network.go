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

// authorityFile stores the authority in Options.Dir: programs installed in one run may
// have copied its certificate.
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

// guard puts the firewall in front of a machine that is about to be made. Without a
// firewall the machine can still have no network at all.
func (sess *Session) guard(config *backend.Config, set *Settings) error {
	st, sb := sess.sb.st, sess.sb
	e, err := firewall.ParsePolicy(set.PolicyRequest)
	if err != nil {
		return err
	}
	if !st.Host.Gated() {
		sess.cutOff = e.Mode == firewall.DenyAll && st.Host.Mode() == box.Namespace
		config.DenyNetwork = sess.cutOff
		return st.Enforceable(e.Mode)
	}
	sess.firewall = st.site.New(st.ctx, proxytest.Claims{
		Issuer: "https://oidc.vercel.com/emulator", TeamID: st.opts.Team, ProjectID: sb.rec.Key.Project, SandboxID: sess.rec.ID, SandboxName: sb.rec.Key.Name,
	}, e)
	config.Firewall = sess.firewall
	return nil
}

// unguard removes the firewall after the machine has ended.
func (sess *Session) unguard() {
	sess.firewall.Close()
}

// enforce puts another policy into force while the machine runs, as far as it
// can. Unless all is allowed, connections end and have to be made again.
func (sess *Session) enforce(machine *box.Box, raw []byte) error {
	e, err := firewall.ParsePolicy(raw)
	if err != nil {
		return err
	}
	if sess.firewall == nil {
		return sess.sb.st.unenforced(!sess.cutOff && e.Mode == firewall.AllowAll || sess.cutOff && e.Mode == firewall.DenyAll)
	}
	sess.firewall.Enforce(e)
	if e.Mode != firewall.AllowAll {
		machine.Disconnect()
	}
	return nil
}

// Enforceable returns an error, or warns, if policies of a mode have no effect on this
// machine even for a session that starts with one.
func (st *Store) Enforceable(mode string) error {
	return st.unenforced(st.Host.Gated() || mode == firewall.AllowAll || mode == firewall.DenyAll && st.Host.Mode() == box.Namespace)
}

// unenforced warns once about a policy without effect on this machine, or refuses it.
// holds says that the policy has an effect.
func (st *Store) unenforced(holds bool) error {
	why := st.opts.Missing()
	switch {
	case holds:
		return nil
	case st.opts.RefuseUnenforced:
		return reply.BadRequest("The emulator can't enforce this network policy here: %s.",
			strings.ReplaceAll(fmt.Sprint(why), "\n", "; "))
	}
	st.warned.Do(func() {
		st.opts.Log.Warn("a network policy is accepted and not enforced", "reason", why)
	})
	return nil
}
