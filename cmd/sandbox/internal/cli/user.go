package cli

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
	"github.com/go-vercel/sandbox/internal/own"
)

// userScript prints the directory that a command of user $1 starts in: $2, or the user's
// home. It is safe to pass $1 to eval, because ParseUser has checked it.
const userScript = `id -u -- "$1" >/dev/null 2>&1 || exit 3
eval "home=~$1"
directory=${2:-$home}
sudo -u "$1" -- sh -c 'cd -- "$1" 2>/dev/null || exit 4; pwd' sh "$directory"
code=$?
[ $code = 4 ] || exit $code
printf %s "$directory"
sudo test -d "$directory" && exit 5
exit 4`

// userDirectory returns the directory that a command of a user starts in, and an error
// if the user can't run a command there. An empty directory is the user's home.
func userDirectory(ctx context.Context, sb *sandbox.Sandbox, user, directory string) (string, error) {
	var out, said bytes.Buffer
	done, err := own.Run(ctx, sb, &sandbox.CommandOptions{Stdout: &out, Stderr: &said}, "sh", "-c", userScript, "sh", user, directory)
	if err != nil {
		return "", startError(err)
	}
	found := strings.TrimSuffix(out.String(), "\n")
	var hint string
	switch done.ExitCode {
	case 0:
		return found, nil
	case 3:
		err = fmt.Errorf("sandbox %s has no user %s", sb.Name(), user)
		hint = "to create the user: " + screen.Try("exec --sudo %s -- useradd --create-home %s", sb.Name(), user)
	case 4:
		err = fmt.Errorf("there is no directory %s in sandbox %s", found, sb.Name())
		if directory == "" {
			err = fmt.Errorf("user %s has no home: there is no directory %s in sandbox %s", user, found, sb.Name())
			hint = "name the directory to start in, such as --workdir /tmp"
		}
	case 5:
		err = fmt.Errorf("user %s may not enter the directory %s of sandbox %s", user, found, sb.Name())
		hint = "name another directory to start in, such as --workdir /tmp"
	default:
		err = fmt.Errorf("sandbox %s can't run a command as user %s: %s", sb.Name(), user, strings.TrimSpace(said.String()))
	}
	if hint != "" {
		err = screen.WithHint(err, "%s", hint)
	}
	return "", &screen.ExitError{Code: screen.ExitNotStarted, Err: err}
}
