package conformance

import (
	"encoding/json"
	"maps"
	"reflect"

	"github.com/go-vercel/sandbox"
)

// listings maps the listing operations to the name of the items, the method that returns a
// page, and the method that returns all items.
var listings = map[string][3]string{
	"list":          {"sandboxes", "Client.ListPage {} -name", "Client.List {} -name"},
	"snapshotList":  {"snapshots", "Client.ListSnapshotsPage {}" + pagesOnly, "Client.ListSnapshots {}" + pagesOnly},
	"listSnapshots": {"snapshots", "Client.ListSnapshotsPage {}" + pagesOnly, "ListSnapshots {} -name" + pagesOnly},
	"listSessions":  {"sessions", "ListSessionsPage {} -name" + pagesOnly, "ListSessions {} -name" + pagesOnly},
	"snapshotTree":  {"snapshots", "Client.SnapshotTreePage snapshotId {} -cursor -name" + pagesOnly, "Client.SnapshotTree snapshotId {} -cursor -name" + pagesOnly},
	"driveList":     {"drives", "Client.ListDrivesPage {} -name -tags", "Client.ListDrives {} -name -tags"},
}

// pagesOnly excludes the arguments that only listings of sandboxes and drives have.
const pagesOnly = " -sortBy -namePrefix -tags"

// listing says which items of a listing, and which of their fields, a step requests.
type listing struct {
	key     string
	Collect string
	Take    *int
	Pick    []string
	Bind    []string
}

func (c *call) list(spec [3]string) (any, error) {
	l := decoded[listing](c.step.Args)
	l.key = spec[0]
	step := *c.step
	defer func() { c.step = &step }()
	none := l.Take != nil && *l.Take == 0 // JavaScript has already requested the first page
	all := l.Collect == "toArray" || l.Collect == "items" && !none
	if sb, ok := c.target.(*sandbox.Sandbox); ok && c.step.Op == "listSnapshots" && !all {
		c.setArgument("name", sb.Name())
	}
	if all {
		items, err := c.method(spec[2])
		if err != nil {
			return nil, err
		}
		if l.Collect == "toArray" {
			defer func() { c.partial = nil }()
		}
		return l.collect(c, items, l.item)
	}
	page, err := c.method(spec[1])
	if err != nil {
		return nil, err
	}
	c.bind(l.Bind, page)
	switch l.Collect {
	case "items":
		return []any{}, nil
	case "pages":
		return c.pages(l, spec[1], page)
	}
	return l.page(page), nil
}

// collect returns the items of an iterator that the step requests.
func (l listing) collect(c *call, seq any, form func(any) any) (any, error) {
	out := []any{}
	for v, e := range reflect.ValueOf(seq).Seq2() {
		if err, _ := reflect.TypeAssert[error](e); err != nil {
			if len(out) > 0 {
				c.partial = out
			}
			return nil, err
		}
		if out = append(out, form(v.Interface())); l.Take != nil && len(out) == *l.Take {
			break
		}
	}
	return out, nil
}

// pages iterates over a page and the following pages.
func (c *call) pages(l listing, spec string, page any) (any, error) {
	out, cursor := []any{}, "cursor"
	if c.step.Op == "snapshotTree" {
		cursor = "snapshotId" // the next page of a tree begins at a snapshot
	}
	for l.Take == nil || len(out) < *l.Take {
		out = append(out, l.page(page))
		next := reflect.ValueOf(page).Elem().FieldByName("Next").String()
		if next == "" || l.Take != nil && len(out) == *l.Take {
			break
		}
		c.setArgument(cursor, next)
		var err error
		if page, err = c.method(spec); err != nil {
			c.partial = out
			return nil, err
		}
	}
	return out, nil
}

// setArgument sets an argument of the step.
func (c *call) setArgument(name, text string) {
	s, args := *c.step, arguments{}
	maps.Copy(args, decoded[arguments](s.Args))
	args[name] = must(json.Marshal(text))
	s.Args = must(json.Marshal(args))
	c.step = &s
}

// page converts a page to the form of results.
func (l listing) page(page any) any {
	p := reflect.ValueOf(page).Elem()
	items := []any{}
	for i := range p.FieldByName("Items").Len() {
		items = append(items, l.item(p.FieldByName("Items").Index(i).Interface()))
	}
	next := any(p.FieldByName("Next").String())
	if next == "" {
		next = nil
	}
	out := object{l.key: items, "pagination": object{"count": float64(len(items)), "next": next}}
	if a := p.FieldByName("Anchor"); !a.IsNil() {
		out["anchor"] = normDeep(listed(a.Elem().Interface()))
	}
	return out
}

// item converts an item to the form of results, with only the selected fields.
func (l listing) item(v any) any {
	item, _ := normDeep(listed(v)).(object)
	if d, ok := v.(sandbox.DriveInfo); ok { // in JavaScript, a drive is a handle, and its fields are getters
		item = object{"drive": d.Name, "driveId": d.ID}
		if l.Pick != nil {
			item = fields(d, isoTime)
			item["driveId"] = d.ID
		}
	}
	if l.Pick == nil {
		return item
	}
	out := object{}
	for _, k := range l.Pick {
		out[k] = item[k]
	}
	return out
}

// bind saves the drives of a page as handles for later steps.
func (c *call) bind(names []string, page any) {
	for i, name := range names {
		args, client := c.static()
		d := page.(*sandbox.Page[sandbox.DriveInfo]).Items[i]
		known := maps.Clone(fields(d, moment))
		known["maxSizeBytes"] = d.MaxSizeBytes
		drive := &sandbox.Drive{}
		check(json.Unmarshal(marshal(object{"drive": known, "projectId": args.text("projectId")}), drive))
		client.Bind(drive)
		c.d.saved.Store(name, drive)
	}
}
