package cli

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
)

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
