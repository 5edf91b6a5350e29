package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
	"github.com/go-vercel/sandbox/internal/wire"
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
	limit := cmp.Or(p.limit, defaultLimit)
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

// printPage prints a page of a listing, and the command line that lists the next page.
func (p *deps) printPage(page screen.Output, next string) error {
	if err := p.screen.Print(page); err != nil || next == "" {
		return err
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
	return nil
}

const (
	defaultLimit = 50
	maxPage      = wire.MaxPage
)
