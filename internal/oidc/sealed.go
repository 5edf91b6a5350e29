package oidc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/go-vercel/sandbox/internal/redact"
)

// errSealed reports that only the CLI can read its login.
var errSealed error = kind{ErrNothing, "the Vercel CLI keeps its login in the system's keyring, or bound to this device, where only the CLI can use it " +
	"(link a project with `vercel link`, so that the CLI can be asked for its token, or set VERCEL_AUTH_TOKEN)"}

// loginIsSealed reports whether only the CLI can use its login, because it is in the
// system's keyring or bound to the device. The rules are those of @vercel/cli-config 0.4.0
// and @vercel/oidc 4.0.9.
func (h *Host) loginIsSealed() (bool, error) {
	dir, err := h.cliDir()
	if err != nil {
		return false, err
	}
	storage, source := h.Getenv("VERCEL_TOKEN_STORAGE"), "VERCEL_TOKEN_STORAGE"
	if storage == "" {
		source = h.join(dir, "config.json")
		o, err := readObject(source)
		if errors.Is(err, fs.ErrNotExist) {
			o, err = object{}, nil
		}
		if err == nil {
			err = o.get(source, "credStorage", &storage)
		}
		if err != nil {
			return false, fmt.Errorf("the CLI's configuration: %w", err)
		}
	}
	bound := h.Getenv("__VERCEL_FF_DPOP") == "1"
	switch storage {
	case "", "file":
		return bound, nil
	case "keyring":
		return true, nil
	case "auto":
		login, _, err := readLogin(h.join(dir, "auth.json"))
		return bound || err != nil || login == Login{}, nil
	}
	return false, fmt.Errorf("the CLI's configuration: %s says that the login is in %.40q, which is none of file, keyring and auto", source, storage)
}

// cliID matches the IDs that may be passed to the CLI. The CLI can't mistake one for an
// option.
var cliID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// askCLI asks the CLI for an OIDC token, as the official package does.
func (h *Host) askCLI(ctx context.Context, scope Scope, doing string) (string, error) {
	args := []string{"project", "token", scope.ProjectID, "--format=json"}
	if scope.TeamID != "" {
		args = append(args, "--scope", scope.TeamID)
	}
	for what, id := range map[string]string{"project": scope.ProjectID, "team": scope.TeamID} {
		if id != "" && !cliID.MatchString(id) {
			return "", fmt.Errorf("%s: %.60q is not the ID of a %s (run `vercel link` again)", doing, id, what)
		}
	}
	program := h.program("vercel")
	if program == "" {
		return "", kind{ErrNothing, "the Vercel CLI keeps its login in the system's keyring, or bound to this device, and there is no program vercel in PATH to ask for a token"}
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	// Run the CLI in the home directory, so that files of the current folder don't affect it.
	if home, err := h.home(); err == nil && isDir(home) {
		cmd.Dir = home
	}
	cmd.WaitDelay = time.Second
	var stdout, stderr limitedBuffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		text := clip(stderr.String())
		return "", &RemoteError{doing, fmt.Errorf("vercel project token: %w: %s", errors.Join(ctx.Err(), err), text)}
	}
	return tokenOf(stdout.Bytes(), doing+" with the Vercel CLI")
}

// program finds a program in PATH. It ignores relative folders of PATH and the current folder.
func (h *Host) program(name string) string {
	names := []string{name}
	if h.GOOS == "windows" {
		names = []string{name + ".cmd", name + ".exe"}
	}
	for _, name := range names {
		for _, dir := range filepath.SplitList(h.Getenv("PATH")) {
			if !filepath.IsAbs(dir) {
				continue
			}
			if found, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				return found
			}
		}
	}
	return ""
}

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// limitedBuffer keeps the first maxBody bytes of a program's output.
type limitedBuffer struct{ bytes.Buffer }

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxBody {
		return 0, io.ErrShortWrite
	}
	return b.Buffer.Write(p)
}

// ReadTokenFile returns the OIDC token in the file that VERCEL_OIDC_TOKEN_FILE
// names.
func ReadTokenFile(file string) (string, error) {
	data, _, err := readFile(file)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(data))
	if token == "" {
		return "", fmt.Errorf("%s is empty", redact.Printable(file))
	}
	return token, nil
}
