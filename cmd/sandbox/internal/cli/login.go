package cli

import (
	"bufio"
	"cmp"
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
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/units"
	"github.com/go-vercel/sandbox/internal/oidc"
	"github.com/go-vercel/sandbox/internal/oidc/login"
)

// loginView is the team and the project of a login, if one was found.
type loginView struct {
	Team    string `json:"team,omitempty"`
	Project string `json:"project,omitempty"`
}

type loginCommand struct{ place }

func (c *loginCommand) command() *command {
	return &command{
		name: "login", near: []string{"auth", "signin"}, first: true, short: "Log in",
		long: "Log in through a browser, on this machine or another. The login is kept in the file that the official tools share. " +
			"With --token - a token is read from standard input and kept instead.",
		example: "login", account: noAccount, doc: loginView{}, run: c.run,
	}
}

func (c *loginCommand) run(cmd *cobra.Command, _ []string) error {
	ctx := cmd.Context()
	host := oidc.NewHost(nil, c.screen.getenv, "")
	found, err := c.newLogin(ctx, host)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.screen.err, "%s You are logged in.\n", c.screen.err.Paint(console.Green, "✔"))
	scope, err := host.InferScope(ctx, oidc.Search{
		Token: found.Token, Given: oidc.Scope{TeamID: c.account.given.scope}, Names: true, Doing: "finding a project for the CLI's login",
	})
	if err != nil {
		c.screen.warn("could not find a project: "+err.Error(), "name one with --scope and --project")
		return c.screen.result(loginView{})
	}
	v := loginView{cmp.Or(scope.TeamSlug, scope.TeamID), cmp.Or(scope.ProjectName, scope.ProjectID)}
	if c.screen.opts.structured() {
		return c.screen.print(output{doc: v, names: []string{v.Team + "/" + v.Project}})
	}
	c.screen.tree([]string{"team: " + v.Team, "project: " + v.Project},
		func(s string) string { return c.screen.err.Paint(console.Dim, s) })
	return nil
}

// maxToken bounds a token that is read from standard input.
const maxToken = 64 << 10

func (c *loginCommand) newLogin(ctx context.Context, host *oidc.Host) (oidc.Login, error) {
	switch c.account.given.token {
	case "":
		return login.Device(ctx, host, c.promptLogin)
	case "-":
		text, err := io.ReadAll(io.LimitReader(c.screen.in, maxToken))
		if err != nil {
			return oidc.Login{}, err
		}
		given := oidc.Login{Token: strings.TrimSpace(string(text))}
		if given.Token == "" || strings.ContainsAny(given.Token, " \n\r\t") {
			return oidc.Login{}, usagef("standard input holds no token")
		}
		given.Expiry, _ = oidc.Expiry(given.Token)
		return given, login.Save(ctx, host, given)
	}
	return oidc.Login{}, usagef("a token on the command line is seen by others; give it on standard input: %s < FILE", try("login --token -"))
}

// promptLogin tells where to log in, and opens the page if ENTER is pressed.
func (c *loginCommand) promptLogin(ctx context.Context, code login.Code) error {
	page := cmp.Or(code.VerificationURLComplete, code.VerificationURL)
	fmt.Fprintf(c.screen.err, "Visit %s and enter the code %s (valid for %s).\n", c.screen.err.Paint(console.Cyan, page),
		c.screen.err.Paint(console.Bold, code.UserCode), units.Long(code.ExpiresAt.Sub(c.screen.now()).Round(time.Minute)))
	if !c.screen.asks() {
		return nil
	}
	fmt.Fprintln(c.screen.err, "Press ENTER to open the page.")
	go func() {
		if _, err := bufio.NewReader(c.screen.in).ReadString('\n'); err == nil && ctx.Err() == nil {
			_ = openPage(page) // the address is on the screen
		}
	}()
	return nil
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

type logoutCommand struct{ place }

func (c *logoutCommand) command() *command {
	return &command{name: "logout", near: []string{"signout"}, short: "Log out", example: "logout", account: noAccount, doc: doneView{}, run: c.run}
}

func (c *logoutCommand) run(cmd *cobra.Command, _ []string) error {
	err := login.Logout(cmd.Context(), oidc.NewHost(nil, c.screen.getenv, ""))
	switch {
	case c.screen.opts.structured() && (err == nil || errors.Is(err, oidc.ErrNotLoggedIn)):
		return c.screen.print(output{doc: doneView{err == nil}})
	case errors.Is(err, oidc.ErrNotLoggedIn):
		_, err = fmt.Fprintf(c.screen.out, "No active session found. You are not currently logged in.\n%s To log in, run: `%s`\n",
			c.screen.out.Paint(console.Bold, "hint:"), c.screen.filled(try("login")))
	case err == nil:
		_, err = fmt.Fprintln(c.screen.out, "Logged out!")
	}
	return err
}
