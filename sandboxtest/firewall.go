package sandboxtest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/go-vercel/sandbox/internal/wire"
	"github.com/go-vercel/sandbox/proxy/proxytest"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box"
	"github.com/go-vercel/sandbox/sandboxtest/internal/firewall"
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
func (sess *session) guard(config *box.Config, set *settings) error {
	s, sb := sess.sb.s, sess.sb
	e, err := firewall.ParsePolicy(set.PolicyRequest)
	if err != nil {
		return err
	}
	if !s.host.Gated() {
		if set.NPM {
			return badRequest("The emulator can't add npm credentials to requests here: %v", s.Enforces().Missing)
		}
		return s.enforceable(e.Mode)
	}
	sess.firewall = s.site.New(s.ctx, proxytest.Claims{
		Issuer: "https://oidc.vercel.com/emulator", TeamID: teamID, ProjectID: sb.key.project, SandboxID: sess.id, SandboxName: sb.key.name,
	}, e, set.NPM)
	config.Firewall = sess.firewall
	return nil
}

// unguard takes it away again. The machine is gone.
func (sess *session) unguard() {
	sess.firewall.Close()
}

// enforce puts another policy into force while the machine runs, as far as it
// can. What was connected before has to connect anew.
func (sess *session) enforce(machine *box.Box, policy *wire.NetworkPolicy, raw []byte) error {
	e, err := firewall.ParsePolicy(raw)
	if err != nil {
		return err
	}
	if sess.firewall == nil {
		if err := sess.sb.s.unenforced(e.Mode == firewall.AllowAll); err != nil {
			return err
		}
	} else {
		sess.firewall.Enforce(e)
	}
	err = machine.SetNetwork(policy.Mode == firewall.DenyAll)
	if errors.Is(err, box.ErrUnsupported) || sess.firewall == nil && e.Mode == firewall.Custom {
		return sess.sb.s.unenforced(false)
	}
	if err == nil && e.Mode == firewall.Custom {
		machine.Disconnect()
	}
	return err
}

// Authority returns the authority that signs the tokens which the firewall
// sends to forward URLs: its Client provides [proxy.Handler] with the keys to
// verify them. It is [Options].Authority, or one created by the first call.
func (s *Server) Authority() (*proxytest.Authority, error) { return s.tokens() }

// fillNPMRC tells npm in a new machine which registries there are, unless its files
// say so already.
func fillNPMRC(ctx context.Context, m *box.Box, lines string) error {
	const name = ".npmrc"
	if lines == "" {
		return nil
	}
	home := m.Account().Home
	if f, _, err := m.ReadFile(path.Join(home, name), ""); err == nil {
		return f.Close()
	}
	var archive bytes.Buffer
	zip := gzip.NewWriter(&archive)
	w := tar.NewWriter(zip)
	err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(lines)), ModTime: time.Now()})
	if err == nil {
		_, err = w.Write([]byte(lines))
	}
	if err = errors.Join(err, w.Close(), zip.Close()); err != nil {
		return err
	}
	return m.Extract(ctx, &archive, home)
}
