package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox"
)

// apiRequest is a request that the user makes up.
type apiRequest struct {
	method, path string
	fields       []pair
	data         string
	paginate     bool
	include      bool
}

type apiCommand struct {
	app *app

	r apiRequest
}

func (c *apiCommand) command() *cobra.Command {
	cmd := &cobra.Command{
		Use: "api <method> <path>", Short: "Send a request to the API", GroupID: groupTools, Args: positionals("method", "path"),
		Long: "Send a request to the API with the token in use, and write the response to standard output. The team is added to the query. " +
			"--jq works on the response.",
		Example: "  $ sandbox api GET /v2/sandboxes -f project=my-project --paginate --jq '.sandboxes[].name'\n" +
			"  $ sandbox api PATCH /v2/sandboxes/web --data '{\"timeout\":600000}'",
	}
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return []string{"/v2/sandboxes"}, cobra.ShellCompDirectiveNoFileComp
		}
		return []string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete}, cobra.ShellCompDirectiveNoFileComp
	}
	flags := cmd.Flags()
	options(flags, &c.r.fields, "field", "f", "key=value", "A parameter of the query, or a field of the body when there is no --data (repeatable)", parsePair)
	option(flags, &c.r.data, "data", "d", "json", "", "The body: JSON, @FILE, or - for standard input", parseText)
	toggle(flags, &c.r.paginate, "paginate", "", "Follow pagination.next and write every page")
	toggle(flags, &c.r.include, "include", "", "Write the status and headers to standard error")
	cmd.RunE = c.run
	return cmd
}

func (c *apiCommand) run(cmd *cobra.Command, args []string) error {
	c.r.method, c.r.path = strings.ToUpper(args[0]), args[1]
	if !strings.HasPrefix(c.r.path, "/") {
		return usagef("the path begins with a slash: /v2/sandboxes")
	}
	return c.callAPI(cmd.Context(), &c.r)
}

func (c *apiCommand) callAPI(ctx context.Context, r *apiRequest) error {
	if _, err := c.app.connect(ctx); err != nil {
		return err
	}
	address, err := url.Parse(c.app.address() + r.path)
	if err != nil {
		return usagef("%v", err)
	}
	query := address.Query()
	if !query.Has("teamId") && !query.Has("slug") {
		query.Set("teamId", c.app.scope.TeamID)
	}
	body, err := c.apiBody(r, query)
	if err != nil {
		return err
	}
	for {
		address.RawQuery = query.Encode()
		next, err := c.onePage(ctx, r, address.String(), body)
		if err != nil || !r.paginate || next == "" {
			return err
		}
		query.Set("cursor", next)
	}
}

// apiBody makes the body, and puts the fields where they belong.
func (c *apiCommand) apiBody(r *apiRequest, query url.Values) ([]byte, error) {
	fields := c.app.pairs(r.fields, "--field")
	if r.method == http.MethodGet || r.method == http.MethodDelete || r.method == http.MethodHead || r.data != "" {
		for k, v := range fields {
			query.Set(k, v)
		}
		fields = nil
	}
	switch {
	case r.data == "-":
		return io.ReadAll(c.app.in)
	case strings.HasPrefix(r.data, "@"):
		return os.ReadFile(r.data[1:])
	case r.data != "":
		return []byte(r.data), nil
	case fields != nil:
		return json.Marshal(fields)
	}
	return nil, nil
}

// address is where requests go, once there is a connection.
func (c *connection) address() string {
	if c.emulator != nil {
		return c.emulator.Address.URL
	}
	return c.base()
}

// maxPageBody bounds a page that is read as a whole.
const maxPageBody = 64 << 20

// request sends a request of its own, with the credentials. It follows no
// redirection, which could lead them elsewhere.
func (c *connection) request(ctx context.Context, method, address string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return nil, usagef("%v", err)
	}
	req.Header.Set("Authorization", "Bearer "+c.scope.Token)
	req.Header.Set("User-Agent", "sandbox-cli/"+Version())
	req.Header.Set("Content-Type", "application/json")
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return client.Do(req)
}

func (c *apiCommand) onePage(ctx context.Context, r *apiRequest, address string, body []byte) (next string, err error) {
	resp, err := c.app.request(ctx, r.method, address, body)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if r.include {
		fmt.Fprintln(c.app.err, resp.Proto, resp.Status)
		_ = resp.Header.Write(c.app.err) // failing to show the headers is not an error
	}
	if !r.paginate && !c.app.opts.structured() {
		_, err = io.Copy(c.app.out, resp.Body)
	} else {
		next, err = c.jsonPage(resp.Body)
	}
	if err == nil && resp.StatusCode/100 != 2 {
		f := failure{exit: exitFailure}
		c.app.explainAPI(&f, &sandbox.APIError{Status: resp.StatusCode})
		err = &exitError{code: f.exit, err: fmt.Errorf("the API returned %s", resp.Status)}
	}
	return next, err
}

func (c *apiCommand) jsonPage(body io.Reader) (next string, err error) {
	data, err := io.ReadAll(io.LimitReader(body, maxPageBody+1))
	if err != nil {
		return "", err
	}
	if len(data) > maxPageBody {
		return "", withHint(fmt.Errorf("the response has more than %d MiB", maxPageBody>>20), "without --paginate and --json it is passed on as it comes")
	}
	var doc any
	if err := json.Unmarshal(data, &doc); err != nil {
		_, err = c.app.out.Write(data)
		return "", err
	}
	var page struct {
		Pagination struct {
			Next any `json:"next"`
		} `json:"pagination"`
	}
	if json.Unmarshal(data, &page) == nil && page.Pagination.Next != nil {
		next = fmt.Sprint(page.Pagination.Next)
	}
	if !c.app.opts.structured() {
		_, err = c.app.out.Write(append(bytes.TrimRight(data, "\n"), '\n'))
		return next, err
	}
	return next, c.app.print(output{doc: doc})
}
