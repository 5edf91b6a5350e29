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
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/units"
	"github.com/go-vercel/sandbox/internal/oidc"
	"github.com/go-vercel/sandbox/internal/oidc/login"
)

// loginView contains the team and the project of a login, if they were found.
type loginView struct {
	Team    string `json:"team,omitempty"`
	Project string `json:"project,omitempty"`
}

type loginCommand struct{ deps }

func (c *loginCommand) command() *line.Command {
	return &line.Command{
		Name: "login", Near: []string{"auth", "signin"}, First: true, Short: "Log in",
		Long: "Log in through a browser, on this machine or another one. The official tools share the file that keeps the login. " +
			"With --token -, read a token from standard input and keep it instead.",
		Example: "login", Account: line.NoAccount, Doc: loginView{}, Run: c.run,
	}
}

func (c *loginCommand) run(cmd *cobra.Command, _ []string) error {
	ctx := cmd.Context()
	host := oidc.NewHost(nil, c.screen.Env.Getenv, "")
	found, err := c.newLogin(ctx, host)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.screen.Err, "%s You are logged in.\n", c.screen.Err.Paint(console.Green, "✔"))
	scope, err := host.InferScope(ctx, oidc.Search{
		Token: found.Token, Given: oidc.Scope{TeamID: c.account.Given.Scope}, Names: true, Doing: "finding a project for the CLI's login",
	})
	if err != nil {
		c.screen.Warn("could not find a project: "+err.Error(), "name one with --scope and --project")
		return c.screen.Result(loginView{})
	}
	v := loginView{cmp.Or(scope.TeamSlug, scope.TeamID), cmp.Or(scope.ProjectName, scope.ProjectID)}
	if c.screen.Opts.Structured() {
		return c.screen.Print(screen.Output{Doc: v, Names: []string{v.Team + "/" + v.Project}})
	}
	c.screen.Tree([]string{"team: " + v.Team, "project: " + v.Project},
		func(s string) string { return c.screen.Err.Paint(console.Dim, s) })
	return nil
}

// maxToken limits the size of a token on standard input.
const maxToken = 64 << 10

func (c *loginCommand) newLogin(ctx context.Context, host *oidc.Host) (oidc.Login, error) {
	switch c.account.Given.Token {
	case "":
		return login.Device(ctx, host, c.promptLogin)
	case "-":
		text, err := io.ReadAll(io.LimitReader(c.screen.In, maxToken))
		if err != nil {
			return oidc.Login{}, err
		}
		given := oidc.Login{Token: strings.TrimSpace(string(text))}
		if given.Token == "" || strings.ContainsAny(given.Token, " \n\r\t") {
			return oidc.Login{}, line.Usagef("standard input holds no token")
		}
		given.Expiry, _ = oidc.Expiry(given.Token)
		return given, login.Save(ctx, host, given)
	}
	return oidc.Login{}, line.Usagef("other users can see a token on the command line; give it on standard input: %s < FILE", screen.Try("login --token -"))
}

// promptLogin prints where to log in, and opens the page if ENTER is pressed.
func (c *loginCommand) promptLogin(ctx context.Context, code login.Code) error {
	page := cmp.Or(code.VerificationURLComplete, code.VerificationURL)
	fmt.Fprintf(c.screen.Err, "Visit %s and enter the code %s (valid for %s).\n", c.screen.Err.Paint(console.Cyan, page),
		c.screen.Err.Paint(console.Bold, code.UserCode), units.Long(code.ExpiresAt.Sub(c.screen.Now()).Round(time.Minute)))
	if !c.screen.Asks() {
		return nil
	}
	fmt.Fprintln(c.screen.Err, "Press ENTER to open the page.")
	go func() {
		if _, err := bufio.NewReader(c.screen.In).ReadString('\n'); err == nil && ctx.Err() == nil {
			_ = openPage(page) // the user can also open the printed address
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

// pageCommand returns the command that opens a page. A server has sent the address, so
// pageCommand accepts only http and https: the program that opens pages might treat another
// address as a file to run, or as an option.
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

type logoutCommand struct{ deps }

func (c *logoutCommand) command() *line.Command {
	return &line.Command{Name: "logout", Near: []string{"signout"}, Short: "Log out", Example: "logout", Account: line.NoAccount, Doc: doneView{}, Run: c.run}
}

func (c *logoutCommand) run(cmd *cobra.Command, _ []string) error {
	err := login.Logout(cmd.Context(), oidc.NewHost(nil, c.screen.Env.Getenv, ""))
	switch {
	case c.screen.Opts.Structured() && (err == nil || errors.Is(err, oidc.ErrNotLoggedIn)):
		return c.screen.Print(screen.Output{Doc: doneView{err == nil}})
	case errors.Is(err, oidc.ErrNotLoggedIn):
		_, err = fmt.Fprintf(c.screen.Out, "No active session found. You are not currently logged in.\n%s To log in, run: `%s`\n",
			c.screen.Out.Paint(console.Bold, "hint:"), c.screen.Filled(screen.Try("login")))
	case err == nil:
		_, err = fmt.Fprintln(c.screen.Out, "Logged out!")
	}
	return err
}
