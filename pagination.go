package sandbox

import (
	"context"
	"fmt"
	"iter"
)

// Page is one page of a listing.
type Page[T any] struct {
	// Items are the page's items.
	Items []T
	// Next is the cursor of the next page, for the Cursor field of the listing's
	// options. It is empty on the last page.
	Next string
	// Count is how many items the API says the page has.
	Count int
	// fetch gets the page behind a cursor.
	fetch func(ctx context.Context, cursor string) (*Page[T], error)
}

// All iterates over the items of this page and of all that follow it, which are
// fetched as they are needed: breaking out of the loop stops the requests. Each
// range starts again at this page. An error is the last thing that is yielded.
func (p *Page[T]) All(ctx context.Context) iter.Seq2[T, error] {
	return items(p.Pages(ctx))
}

// Pages iterates over this page and all that follow it, as [Page.All] does over
// their items.
func (p *Page[T]) Pages(ctx context.Context) iter.Seq2[*Page[T], error] {
	return pages(ctx, func() (*Page[T], error) { return p, nil })
}

// pages iterates from the page that first returns.
func pages[T any](ctx context.Context, first func() (*Page[T], error)) iter.Seq2[*Page[T], error] {
	return func(yield func(*Page[T], error) bool) {
		page, err := first()
		seen := map[string]bool{}
		for {
			if err == nil {
				err = context.Cause(ctx)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(page, nil) || page.Next == "" {
				return
			}
			if seen[page.Next] {
				yield(nil, fmt.Errorf("sandbox: the listing does not end: the API gave the cursor %q twice", page.Next))
				return
			}
			if page.fetch == nil {
				yield(nil, invalid("Page", "was not made by a listing, so that the next one can't be fetched; use its Next as Cursor"))
				return
			}
			seen[page.Next] = true
			page, err = page.fetch(ctx, page.Next)
		}
	}
}

// items iterates over the items of pages.
func items[T any](pages iter.Seq2[*Page[T], error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for page, err := range pages {
			if err != nil {
				var zero T
				yield(zero, err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
		}
	}
}

// listAll iterates over all items from a first page on, which is fetched anew
// by each range.
func listAll[T any](ctx context.Context, first func() (*Page[T], error)) iter.Seq2[T, error] {
	return items(pages(ctx, first))
}

// Collect returns everything that an iterator such as [List] yields. With an
// error it also returns what came before it.
func Collect[T any](seq iter.Seq2[T, error]) ([]T, error) {
	var all []T
	for item, err := range seq {
		if err != nil {
			return all, err
		}
		all = append(all, item)
	}
	return all, nil
}
