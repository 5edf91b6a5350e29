package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/table"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/units"
	"github.com/go-vercel/sandbox/internal/wire"
)

const (
	defaultLimit = 50
	maxPage      = wire.MaxPage
)

// paging are the options of every listing.
type paging struct {
	limit     int
	cursor    string
	sortOrder string
}

func (p *paging) define(flags *pflag.FlagSet, what string) {
	line.Choice(flags, &p.sortOrder, "sort-order", "", "value", "Sort order. Options: asc, desc (default)", "asc", "desc")
	line.Option(flags, &p.limit, "limit", "", "number", "", "Maximum number of "+what+" (default 50)", line.ParsePositive)
	line.Option(flags, &p.cursor, "cursor", "", "str", "", "Continue from the 'More results' hint of an earlier call", line.ParseAny)
}

// collect reads pages until it has as many matching items as requested. The returned
// cursor continues after the last item. It is the API's cursor if the last page has no
// more items. Otherwise it is the cursor of that page, a ~ and the ID of the last item.
func collect[T any](ctx context.Context, p *paging, id func(T) string, keep func(T) bool,
	page func(ctx context.Context, limit int, cursor string) (*sandbox.Page[T], error),
) (items []T, next string, err error) {
	limit := p.limit
	if limit == 0 {
		limit = defaultLimit
	}
	cursor, skipTo, skipping := strings.Cut(p.cursor, "~")
	for {
		size := maxPage
		if len(items) == 0 && !skipping {
			size = min(size, limit)
		}
		pg, err := page(ctx, size, cursor)
		if err != nil {
			return nil, "", err
		}
		rest := pg.Items
		if skipping {
			if i := slices.IndexFunc(rest, func(it T) bool { return id(it) == skipTo }); i >= 0 {
				rest = rest[i+1:]
			}
			skipping = false
		}
		for i, it := range rest {
			if !keep(it) {
				continue
			}
			items = append(items, it)
			if len(items) == limit {
				if i < len(rest)-1 {
					return items, cursor + "~" + id(it), nil
				}
				return items, pg.Next, nil
			}
		}
		if pg.Next == "" {
			return items, "", nil
		}
		cursor = pg.Next
	}
}

// printNextPageHint prints the command line that lists the next page.
func (p *deps) printNextPageHint(next string) {
	if next == "" {
		return
	}
	var words []string
	for i := 0; i < len(p.screen.Args); i++ {
		switch {
		case p.screen.Args[i] == "--cursor":
			i++
		case p.screen.Args[i] == "--token":
			i++ // a token is never shown
		case strings.HasPrefix(p.screen.Args[i], "--cursor="), strings.HasPrefix(p.screen.Args[i], "--token="):
		default:
			words = append(words, p.screen.Args[i])
		}
	}
	fmt.Fprintf(p.screen.Err, "\nMore results: sandbox %s --cursor %s\n", line.ShellWords(words), line.ShellWord(next))
}

// selection selects sandboxes by their properties.
type selection struct {
	all        bool
	statuses   []string
	tags       []line.Pair
	namePrefix string
}

func (s *selection) define(flags *pflag.FlagSet) {
	line.Options(flags, &s.statuses, "status", "", "status,...", "Only sandboxes in this state (repeatable)", line.ParseStatuses)
	line.Options(flags, &s.tags, "tag", "t", "key=value", "Only sandboxes with this tag (repeatable)", line.ParsePair)
	line.Option(flags, &s.namePrefix, "name-prefix", "", "str", "", "Only sandboxes whose name begins with this", line.ParseText)
	line.Toggle(flags, &s.all, "all", "a", "All sandboxes of the project")
}

// given reports whether the command line contains a selection.
func (s *selection) given() bool {
	return s.all || len(s.statuses) > 0 || len(s.tags) > 0 || s.namePrefix != ""
}

// filterable lists the statuses that the API can filter by.
var filterable = []sandbox.Status{sandbox.StatusRunning, sandbox.StatusStopping, sandbox.StatusStopped}

func (s *selection) states() []sandbox.Status {
	var states []sandbox.Status
	for _, list := range s.statuses {
		for state := range strings.SplitSeq(list, ",") {
			states = append(states, sandbox.Status(state))
		}
	}
	return states
}

// matcher returns a function that reports whether a sandbox matches the selection.
func (s *selection) matcher(tags map[string]string) func(sandbox.Info) bool {
	states := s.states()
	return func(i sandbox.Info) bool {
		if len(states) > 0 && !slices.Contains(states, i.Status) {
			return false
		}
		for k, v := range tags {
			if got, ok := i.Tags[k]; !ok || got != v {
				return false
			}
		}
		return strings.HasPrefix(i.Name, s.namePrefix)
	}
}

// listOptions returns the API's options for a selection that is sorted by a field. The API
// filters only by one tag, and by one status if the listing is sorted by creation time. The
// caller checks the other conditions.
func (s *selection) listOptions(tags map[string]string, by sandbox.SortBy) sandbox.ListOptions {
	o := sandbox.ListOptions{NamePrefix: s.namePrefix, SortBy: by}
	if states := s.states(); s.namePrefix == "" && (by == "" || by == sandbox.SortByCreatedAt) && len(states) == 1 && slices.Contains(filterable, states[0]) {
		o.Status = states[0]
	}
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		o.Tags = map[string]string{k: tags[k]}
		break
	}
	return o
}

// checkTags refuses tags whose value comes from a variable that is not set.
func (p *deps) checkTags(tags []line.Pair) error {
	for _, it := range tags {
		if _, ok := p.screen.Env.LookupAll(it.Key); it.Inherit && !ok {
			return screen.WithHint(line.Usagef("--tag %s has no value", it.Key), "--tag NAME is short for --tag NAME=$NAME, and %s is not set", it.Key)
		}
	}
	return nil
}

// checkFilters refuses empty filters in a listing that a program reads. They usually come
// from an unset variable, and the program might remove all the sandboxes that it gets.
// People would notice, so listings for them accept empty filters, as the official CLI does.
func (p *deps) checkFilters(flags *pflag.FlagSet) error {
	for _, name := range []string{"name", "name-prefix"} {
		if f := flags.Lookup(name); f != nil && f.Changed && f.Value.String() == "" {
			return screen.WithHint(line.Usagef("--%s is empty, which lists everything", name), "leave it out to list everything")
		}
	}
	if f := flags.Lookup("tag"); f != nil {
		return p.checkTags(*f.Value.(*line.Many[line.Pair]).Target)
	}
	return nil
}

// findSelected lists all sandboxes of a selection.
func (p *deps) findSelected(ctx context.Context, s *selection) ([]sandbox.Info, error) {
	// Other commands omit a tag whose variable is not set, with a warning. Here that could
	// select all sandboxes, and the caller may remove them.
	if err := p.checkTags(s.tags); err != nil {
		return nil, err
	}
	client, err := p.account.Connect(ctx)
	if err != nil {
		return nil, err
	}
	tags := p.resolvePairs(s.tags, "--tag")
	opts := s.listOptions(tags, "")
	match := s.matcher(tags)
	var found []sandbox.Info
	for i, err := range client.List(ctx, &opts) {
		if err != nil {
			return nil, err
		}
		if match(i) {
			found = append(found, i)
		}
	}
	return found, nil
}

type listCommand struct {
	deps

	pages  paging
	sel    selection
	sortBy string
}

func (c *listCommand) command() *line.Command {
	return &line.Command{
		Name: "list", Aliases: []string{"ls"}, Near: []string{"get", "status"}, First: true, Short: "List the sandboxes of a project",
		Long:    "List the running sandboxes of a project, or all of them with --all.",
		Options: c.define, Example: "ls --status stopped --tag env=ci", Doc: []sandboxView{}, Run: c.run,
	}
}

func (c *listCommand) define(flags *pflag.FlagSet) {
	line.Toggle(flags, &c.sel.all, "all", "a", "Show all sandboxes (default shows just running)")
	line.Option(flags, &c.sel.namePrefix, "name-prefix", "", "str", "", "Filter sandboxes by name prefix", line.ParseAny)
	line.Choice(flags, &c.sortBy, "sort-by", "", "value", "Sort sandboxes by field. Options: createdAt (default), name, statusUpdatedAt, currentSnapshotId", "createdAt", "name", "statusUpdatedAt", "currentSnapshotId")
	line.Options(flags, &c.sel.tags, "tag", "", "key=value", "Filter sandboxes by tag (repeatable)", line.ParsePair)
	line.Options(flags, &c.sel.statuses, "status", "", "status,...", "Show sandboxes in these states, such as stopped", line.ParseStatuses)
	line.Offer(flags, "status", line.Statuses...)
	c.pages.define(flags, "sandboxes")
}

func (c *listCommand) run(cmd *cobra.Command, _ []string) error {
	if c.sel.namePrefix != "" && c.sortBy != "" && c.sortBy != "name" {
		return line.Usagef("--sort-by must be name with --name-prefix")
	}
	client, err := c.account.Connect(cmd.Context())
	if err != nil {
		return err
	}
	tags := c.resolvePairs(c.sel.tags, "--tag")
	shown := c.sel
	if !c.sel.all && len(c.sel.statuses) == 0 {
		shown.statuses = []string{string(sandbox.StatusRunning)}
	}
	opts := shown.listOptions(tags, sandbox.SortBy(c.sortBy))
	opts.SortOrder = sandbox.SortOrder(c.pages.sortOrder)
	stop := c.screen.Spin("Fetching sandboxes...")
	found, next, err := collect(cmd.Context(), &c.pages, func(i sandbox.Info) string { return i.Name }, shown.matcher(tags),
		func(ctx context.Context, limit int, cursor string) (*sandbox.Page[sandbox.Info], error) {
			opts.Limit, opts.Cursor = limit, cursor
			return client.ListPage(ctx, &opts)
		})
	stop()
	if err != nil {
		return err
	}
	ans := screen.List(mapped(found, viewSandbox), func(v sandboxView) string { return v.Name },
		func(views []sandboxView) *table.Table { return c.sandboxTable(views, c.sel.all) })
	switch {
	case len(c.sel.tags) > 0 || c.sel.namePrefix != "":
		ans.Empty = "No sandboxes match."
	case c.sel.all || len(c.sel.statuses) > 0:
		ans.Empty = "No sandboxes."
	default:
		ans.Empty = "No sandboxes are running; " + screen.Try("ls --all") + " shows the others."
	}
	if err := c.screen.Print(ans); err != nil {
		return err
	}
	c.printNextPageHint(next)
	return nil
}

var statusStyles = map[sandbox.Status]console.Style{
	sandbox.StatusRunning: console.Cyan, sandbox.StatusFailed: console.Red, sandbox.StatusPending: console.Magenta,
	sandbox.StatusSnapshotting: console.Blue, sandbox.StatusStopped: console.Gray, sandbox.StatusStopping: console.Gray,
	sandbox.StatusAborted: console.Gray,
}

func statusCell(s sandbox.Status) table.Cell {
	return table.Cell{Text: string(s), Style: statusStyles[s]}
}

func (c *listCommand) sandboxTable(views []sandboxView, usage bool) *table.Table {
	header := []string{"NAME", "STATUS", "CREATED", "REGION", "MEMORY", "VCPUS", "IMAGE/RUNTIME", "TIMEOUT", "SNAPSHOT", "MOUNTS", "TAGS"}
	if usage {
		header = append(header, "CPU", "NETWORK (OUT/IN)")
	}
	t := table.New(header...)
	t.Least = []string{"MOUNTS", "SNAPSHOT", "NETWORK (OUT/IN)", "CPU", "VCPUS", "REGION", "MEMORY", "IMAGE/RUNTIME", "CREATED", "TAGS", "TIMEOUT"}
	now := c.screen.Now()
	for _, v := range views {
		row := []any{
			v.Name, statusCell(v.Status), relativeTime(v.CreatedAt, now), orDash(v.Region), memoryOrDash(v.Memory), numberOrDash(v.VCPUs),
			imageOrRuntime(v.Image, v.Runtime), timeoutText(v, now), orDash(v.CurrentSnapshotID), mountsText(v.Mounts), tagsText(v.Tags, ":"),
		}
		if usage {
			row = append(row, cpuText(v.TotalActiveCPU), networkText(v.TotalEgress, v.TotalIngress))
		}
		t.Row(row...)
	}
	return t
}

func timeoutText(v sandboxView, now time.Time) string {
	switch {
	case v.ExpiresAt != nil:
		return units.Distance(*v.ExpiresAt, now)
	case v.Timeout > 0 && v.CreatedAt != nil:
		return units.Distance(v.CreatedAt.Add(time.Duration(v.Timeout)*time.Millisecond), now)
	}
	return "-"
}
