package sandboxtest

import (
	"context"
	"errors"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
	"github.com/go-vercel/sandbox/sandboxtest/internal/reply"
	"github.com/go-vercel/sandbox/sandboxtest/internal/store"
)

// repositoryName returns the directory into which git would clone.
func (src *source) repositoryName() string {
	u, err := url.Parse(src.URL)
	if err != nil {
		return "repository"
	}
	name := strings.TrimSuffix(path.Base(strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/.git")), ".git")
	if name == "" || name == "." || name == ".." || name == "/" {
		return "repository"
	}
	return name
}

// clone clones within the machine, so that the repository belongs to its user and the
// network policy applies. A credential helper, which is set in the environment of this one
// command, provides the password. The helper does so only for the URL's own host, and
// stores nothing.
func (src *source) clone(ctx context.Context, m *box.Box, dir string) error {
	git := &gitRun{m: m, dir: dir, env: []string{"GIT_TERMINAL_PROMPT=0", "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C"}}
	if src.Username != "" {
		u, err := url.Parse(src.URL)
		if err != nil {
			return reply.Invalid("`source.url` should match format \"uri\".")
		}
		git.env = append(git.env,
			"GIT_CONFIG_COUNT=1",
			"GIT_CONFIG_KEY_0=credential."+u.Scheme+"://"+u.Host+".helper",
			`GIT_CONFIG_VALUE_0=!f() { test "$1" = get && printf 'username=%s\npassword=%s\n' "$SANDBOX_GIT_USER" "$SANDBOX_GIT_PASSWORD"; }; f`,
			"SANDBOX_GIT_USER="+src.Username, "SANDBOX_GIT_PASSWORD="+src.Password)
		git.secrets = []string{src.Password, url.QueryEscape(src.Password)}
	}
	if u, err := url.Parse(src.URL); err == nil && u.User != nil {
		if password, ok := u.User.Password(); ok {
			git.secrets = append(git.secrets, password)
		}
	}
	var depth []string
	if src.Depth != nil {
		depth = []string{"--depth", strconv.Itoa(*src.Depth)}
	}
	if src.Revision == "" {
		return git.run(ctx, append(append([]string{"clone", "--quiet"}, depth...), "--", src.URL, dir)...)
	}
	if err := m.Mkdir(dir, ""); err != nil {
		return err
	}
	git.inside = true
	for _, args := range [][]string{{"init", "--quiet"}, {"remote", "add", "--", "origin", src.URL}} {
		if err := git.run(ctx, args...); err != nil {
			return err
		}
	}
	fetch := append([]string{"fetch", "--quiet"}, depth...)
	if err := git.run(ctx, append(fetch, "origin", src.Revision)...); err == nil {
		return git.run(ctx, "checkout", "--quiet", "FETCH_HEAD", "--")
	}
	// Not every server serves a commit by its ID.
	if err := git.run(ctx, "fetch", "--quiet", "--tags", "origin", "+refs/heads/*:refs/remotes/origin/*"); err != nil {
		return err
	}
	return git.run(ctx, "checkout", "--quiet", src.Revision, "--")
}

type gitRun struct {
	m       *box.Box
	env     []string
	secrets []string
	// dir is the directory of the repository, in which git runs if inside is set.
	dir    string
	inside bool
}

// maxGitError limits how much of git's output an error contains.
const maxGitError = 2 << 10

func (g *gitRun) run(ctx context.Context, args ...string) error {
	out := &limitedBuffer{limit: maxGitError}
	spec := backend.Spec{Path: "git", Args: args, Env: g.env, Stdout: out, Stderr: out}
	if g.inside {
		spec.Dir = g.dir
	}
	p, err := g.m.Start(ctx, spec)
	if failure, ok := errors.AsType[*backend.LaunchError](err); ok {
		return reply.BadRequest("git clone failed: %s", failure.Message)
	}
	if err != nil {
		return err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		_ = p.SignalGroup(store.SigKill) // it may have ended by itself
		<-p.Done()
		return ctx.Err()
	}
	code := p.Wait()
	if code == 0 {
		return nil
	}
	text := strings.TrimSpace(out.String())
	for _, secret := range g.secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "<redacted>")
		}
	}
	return reply.BadRequest("git clone failed: exit status %d: %s", code, text)
}

// limitedBuffer keeps the first bytes that are written to it.
type limitedBuffer struct {
	limit int

	mu  sync.Mutex
	buf []byte
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buf = append(b.buf, p[:min(len(p), b.limit-len(b.buf))]...)
	return len(p), nil
}

func (b *limitedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.buf)
}
