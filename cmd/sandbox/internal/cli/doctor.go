package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/table"
	"github.com/go-vercel/sandbox/internal/oidc"
	"github.com/go-vercel/sandbox/sandboxtest"
)

// finding is the result of one check of doctor.
type finding struct {
	Check  string `json:"check"`
	Status string `json:"status"` // ok, warning or failed
	Detail string `json:"detail"`
}

const (
	foundOK      = "ok"
	foundWarning = "warning"
	foundFailed  = "failed"
)

// maxSkew is the largest accepted clock difference. With a larger one, valid tokens may
// look expired.
const maxSkew = 2 * time.Minute

// checkTimeout limits the time of one check.
const checkTimeout = 15 * time.Second

type doctorCommand struct{ deps }

func (c *doctorCommand) command() *line.Command {
	return &line.Command{
		Name: "doctor", Near: []string{"check", "diagnose"}, Title: titleTools, Short: "Check the network, the clock, the token, the project and the terminal",
		Example: "doctor", Doc: []finding{}, Run: c.run,
	}
}

func (c *doctorCommand) run(cmd *cobra.Command, _ []string) error {
	findings := c.runChecks(cmd.Context())
	if err := c.screen.Print(screen.List(findings, func(f finding) string { return f.Check }, c.findingTable)); err != nil {
		return err
	}
	for _, f := range findings {
		if f.Status == foundFailed {
			return screen.ExitWith(screen.ExitFailure)
		}
	}
	return nil
}

func (c *doctorCommand) findingTable(findings []finding) *table.Table {
	styles := map[string]console.Style{foundOK: console.Green, foundWarning: console.Yellow, foundFailed: console.Red}
	marks := map[string]string{foundOK: "✔ ok", foundWarning: "! warning", foundFailed: "✖ failed"}
	t := table.New("CHECK", "STATUS", "DETAIL")
	t.Breaks = true
	for _, f := range findings {
		t.Row(f.Check, table.Cell{Text: marks[f.Status], Style: styles[f.Status]}, f.Detail)
	}
	return t
}

func (c *doctorCommand) runChecks(ctx context.Context) []finding {
	found := []finding{
		{"version", foundOK, fmt.Sprintf("sandbox %s, %s, %s/%s", Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)},
		c.reportProxy(),
	}
	found = append(found, c.checkNetwork(ctx)...)
	found = append(found, c.checkCredentials(ctx)...)
	return append(found, c.checkLogin(), c.checkTerminal(), checkEmulator())
}

func (c *doctorCommand) reportProxy() finding {
	req, err := http.NewRequest(http.MethodGet, c.account.Base(), nil)
	if err != nil {
		return finding{"proxy", foundFailed, err.Error()}
	}
	proxy, err := http.ProxyFromEnvironment(req)
	switch {
	case err != nil:
		return finding{"proxy", foundFailed, err.Error()}
	case proxy == nil:
		return finding{"proxy", foundOK, "none"}
	}
	return finding{"proxy", foundOK, proxy.Redacted()}
}

// checkNetwork sends a request to the API's server, and compares this machine's clock with
// the server's.
func (c *doctorCommand) checkNetwork(ctx context.Context) []finding {
	if c.account.Given.Local {
		return []finding{{"network", foundOK, "not needed with --local"}}
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	address, err := url.Parse(c.account.Base())
	if err != nil {
		return []finding{{"network", foundFailed, err.Error()}}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, address.String(), nil)
	if err != nil {
		return []finding{{"network", foundFailed, err.Error()}}
	}
	start := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return []finding{{"network", foundFailed, err.Error()}}
	}
	defer resp.Body.Close()
	took := time.Since(start)
	found := []finding{{"network", foundOK, fmt.Sprintf("%s responds in %d ms", address.Host, took.Milliseconds())}}
	date, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return append(found, finding{"clock", foundWarning, "the server sends no date"})
	}
	skew := time.Until(date).Round(time.Second)
	if skew.Abs() > maxSkew {
		return append(found, finding{"clock", foundFailed, fmt.Sprintf("off by %s: tokens will seem expired", skew.Abs())})
	}
	return append(found, finding{"clock", foundOK, "agrees with the server's"})
}

func (c *doctorCommand) checkCredentials(ctx context.Context) []finding {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	c.screen.Opts.NoInput, c.account.Looks = true, true
	client, err := c.account.Connect(ctx)
	others := finding{"other tokens", foundOK, c.account.UnusedTokens()}
	if err != nil {
		f := c.screen.Explain(err)
		return []finding{{"token", foundFailed, f.Message}, others, {"project", foundFailed, "not known without a token"}}
	}
	token := finding{"token", foundOK, "from " + c.screen.Source}
	if at, ok := oidc.Expiry(c.account.Scope.Token); ok {
		token.Detail += ", valid until " + at.Local().Format(time.DateTime)
		if time.Now().After(at) {
			token.Status = foundFailed
		}
	}
	where := fmt.Sprintf("team %s, project %s", c.account.Scope.TeamID, c.account.Scope.ProjectID)
	page, err := client.ListPage(ctx, &sandbox.ListOptions{Limit: maxPage})
	if err != nil {
		return []finding{token, others, {"project", foundFailed, where + ": " + c.screen.Explain(err).Message}}
	}
	running := 0
	for _, i := range page.Items {
		if i.Status == sandbox.StatusRunning {
			running++
		}
	}
	if page.Next != "" {
		where += ", at least"
	} else {
		where += ","
	}
	return []finding{token, others, {"project", foundOK, fmt.Sprintf("%s %d running", where, running)}}
}

// checkLogin warns if other users can read the file of the login.
func (c *doctorCommand) checkLogin() finding {
	file, err := oidc.NewHost(nil, c.screen.Env.Getenv, "").LoginFile()
	if err != nil {
		return finding{"login file", foundWarning, err.Error()}
	}
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return finding{"login file", foundOK, "none"}
	case err != nil:
		return finding{"login file", foundWarning, err.Error()}
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return finding{"login file", foundWarning, fmt.Sprintf("%s can be read by others: chmod 600 it", file)}
	}
	return finding{"login file", foundOK, file}
}

func (c *doctorCommand) checkTerminal() finding {
	if !line.IsTerminal(c.screen.In) || !c.screen.Out.Terminal {
		return finding{"terminal", foundWarning, "none here: connect, sh and questions won't work"}
	}
	name, _ := c.screen.Env.Lookup("TERM")
	return finding{"terminal", foundOK, fmt.Sprintf("%s, %d columns", orDash(name), c.screen.Out.Width())}
}

// checkEmulator reports whether --local works on this machine, and in which mode.
func checkEmulator() finding {
	server, err := sandboxtest.NewServer(nil)
	if err != nil {
		return finding{"emulator", foundWarning, err.Error()}
	}
	defer server.Close()
	return finding{"emulator", foundOK, "--local works, in mode " + string(server.Mode())}
}
