package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/proxy/proxytest"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
	"github.com/go-vercel/sandbox/sandboxtest/internal/firewall"
	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
)

// authorityFile keeps the authority in Options.Dir: what was installed in
// sandboxes in one run may have copied its certificate.
const authorityFile = "authority.pem"

// openAuthority takes the authority from a directory, or makes one, which it
// keeps there: the caller has the directory locked. Without one it is forgotten.
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

// guard puts the firewall before a machine that is about to be made, as far as
// there can be one.
func (sess *Session) guard(config *backend.Config, set *Settings) error {
	st, sb := sess.sb.st, sess.sb
	e, err := firewall.ParsePolicy(set.PolicyRequest)
	if err != nil {
		return err
	}
	if !st.Host.Gated() {
		return st.Enforceable(e.Mode)
	}
	sess.firewall = st.site.New(st.ctx, proxytest.Claims{
		Issuer: "https://oidc.vercel.com/emulator", TeamID: st.opts.Team, ProjectID: sb.key.Project, SandboxID: sess.id, SandboxName: sb.key.Name,
	}, e)
	config.Firewall = sess.firewall
	return nil
}

// unguard takes it away again. The machine is gone.
func (sess *Session) unguard() {
	sess.firewall.Close()
}

// enforce puts another policy into force while the machine runs, as far as it
// can. What was connected before has to connect anew.
func (sess *Session) enforce(machine *box.Box, policy *wire.NetworkPolicy, raw []byte) error {
	e, err := firewall.ParsePolicy(raw)
	if err != nil {
		return err
	}
	if sess.firewall == nil {
		if err := sess.sb.st.unenforced(e.Mode == firewall.AllowAll); err != nil {
			return err
		}
	} else {
		sess.firewall.Enforce(e)
	}
	err = machine.SetNetwork(policy.Mode == firewall.DenyAll)
	if errors.Is(err, backend.ErrUnsupported) || sess.firewall == nil && e.Mode == firewall.Custom {
		return sess.sb.st.unenforced(false)
	}
	if err == nil && e.Mode == firewall.Custom {
		machine.Disconnect()
	}
	return err
}

// Enforceable is an error, or a warning, for a mode of policies that does not
// hold here even for a session that starts with it.
func (st *Store) Enforceable(mode string) error {
	return st.unenforced(st.Host.Gated() || mode == firewall.AllowAll || mode == firewall.DenyAll && st.Host.Mode() == box.Namespace)
}

// unenforced warns, once, of a policy that does not hold here, or refuses it.
// holds says that it does.
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
