package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
	"github.com/go-vercel/sandbox/internal/oidc"
)

func (a *app) loginCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "login", Short: "Log in", Args: positionals(),
		Long: "Log in through a browser, on this machine or another. The login is kept in the file that the official tools share. " +
			"With --token - a token is read from standard input and kept instead.",
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		host := oidc.NewHost(nil, a.getenv, "")
		login, err := a.newLogin(ctx, host)
		if err != nil {
			return err
		}
		fmt.Fprintf(a.err, "%s You are logged in.\n", a.err.Paint(console.Green, "✔"))
		scope, err := host.InferScope(ctx, login.Token, a.opts.scope)
		if err != nil {
			a.warn("could not find a project: "+err.Error(), "name one with --scope and --project")
			return nil
		}
		a.tree([]string{"team: " + first(scope.TeamSlug, scope.TeamID), "project: " + first(scope.ProjectName, scope.ProjectID)},
			func(s string) string { return a.err.Paint(console.Dim, s) })
		return nil
	}
	return cmd
}

// maxToken bounds a token that is read from standard input.
const maxToken = 64 << 10

func (a *app) newLogin(ctx context.Context, host *oidc.Host) (oidc.Login, error) {
	switch a.opts.token {
	case "":
		return host.DeviceLogin(ctx, a.promptLogin)
	case "-":
		text, err := io.ReadAll(io.LimitReader(a.in, maxToken))
		if err != nil {
			return oidc.Login{}, err
		}
		login := oidc.Login{Token: strings.TrimSpace(string(text))}
		if login.Token == "" || strings.ContainsAny(login.Token, " \n\r\t") {
			return oidc.Login{}, usagef("standard input holds no token")
		}
		login.Expiry, _ = oidc.Expiry(login.Token)
		return login, host.SaveLogin(ctx, login)
	}
	return oidc.Login{}, usagef("a token on the command line is seen by others; give it on standard input: sandbox login --token - < FILE")
}

// promptLogin tells where to log in, and opens the page if ENTER is pressed.
func (a *app) promptLogin(ctx context.Context, code oidc.DeviceCode) error {
	page := first(code.VerificationURIComplete, code.VerificationURI)
	fmt.Fprintf(a.err, "Visit %s and enter the code %s (valid for %s).\n", a.err.Paint(console.Cyan, page),
		a.err.Paint(console.Bold, code.UserCode), longDuration(code.Expiry.Sub(a.now()).Round(time.Minute)))
	if !a.asks() {
		return nil
	}
	fmt.Fprintln(a.err, "Press ENTER to open the page.")
	go func() {
		if _, err := bufio.NewReader(a.in).ReadString('\n'); err == nil && ctx.Err() == nil {
			_ = openPage(page) // the address is on the screen
		}
	}()
	return nil
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// openPage opens an address in the browser.
func openPage(address string) error {
	cmd, err := pageCommand(address)
	if err != nil {
		return err
	}
	return cmd.Start()
}

// pageCommand returns what opens a page. The address is a server's: to the
// programs that open pages it may also be a file, which they run, or an option.
func pageCommand(address string) (*exec.Cmd, error) {
	if u, err := url.Parse(address); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%q is not the address of a page", address)
	}
	switch runtime.GOOS {
	case "darwin":
		return exec.Command("open", address), nil
	case "windows":
		return exec.Command("rundll32", "url.dll,FileProtocolHandler", address), nil
	}
	return exec.Command("xdg-open", address), nil
}

func (a *app) logoutCommand() *cobra.Command {
	return &cobra.Command{
		Use: "logout", Short: "Log out", Args: positionals(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := oidc.NewHost(nil, a.getenv, "").Logout(cmd.Context())
			switch {
			case errors.Is(err, oidc.ErrNotLoggedIn):
				_, err = fmt.Fprintf(a.out, "No active session found. You are not currently logged in.\n%s To log in, run: `sandbox login`\n",
					a.out.Paint(console.Bold, "hint:"))
			case err == nil:
				_, err = fmt.Fprintln(a.out, "Logged out!")
			}
			return err
		},
	}
}
