package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-vercel/sandbox"
)

// on returns the object that the call is made on.
func on[T any](c *call) (T, error) {
	t, ok := c.target.(T)
	if !ok {
		return t, fmt.Errorf("conformance: %s is not made for a %T", c.step.Op, c.target)
	}
	return t, nil
}

func opCurrentSession(c *call) (any, error) {
	sb, err := on[*sandbox.Sandbox](c)
	if err != nil {
		return nil, err
	}
	s := sb.CurrentSession()
	if s == nil {
		return nil, errNoSession
	}
	return s, nil
}

func opDomain(c *call) (any, error) {
	t, err := on[interface{ URL(int) (string, error) }](c)
	if err != nil {
		return nil, err
	}
	var a struct {
		Port int `json:"port"`
	}
	if err := c.args(&a); err != nil {
		return nil, err
	}
	if sb, ok := t.(*sandbox.Sandbox); ok && sb.CurrentSession() == nil {
		return nil, errNoSession
	}
	return t.URL(a.Port)
}

func opStop(c *call) (any, error) {
	sb, err := on[*sandbox.Sandbox](c)
	if err != nil {
		return nil, err
	}
	// The official SDK returns the response to the request.
	r, err := sb.Stop(c.ctx, &sandbox.StopOptions{NoWait: true})
	if err != nil && sb.CurrentSession() == nil {
		return nil, &textError{"No active session to stop.", err}
	}
	if err != nil {
		return nil, err
	}
	out := sessionData(r.Session)
	if p := policyValue(r.Session.NetworkPolicy); p != nil {
		out["networkPolicy"] = p
	}
	if r.Snapshot != nil {
		out["snapshot"] = snapshotData(*r.Snapshot)
	}
	return out, nil
}

func opDispose(c *call) (any, error) {
	sb, err := on[*sandbox.Sandbox](c)
	if err != nil {
		return nil, err
	}
	return nil, sb.Close()
}

func opDelete(c *call) (any, error) {
	if sb, ok := c.target.(*sandbox.Sandbox); ok {
		s := statics{}
		if err := c.args(&s); err != nil {
			return nil, err
		}
		var o sandbox.DeleteOptions
		if err := s.get("deleteOrphanSnapshots", &o.DeleteOrphanSnapshots); err != nil {
			return nil, err
		}
		return nil, sb.Delete(c.ctx, &o)
	}
	t, err := on[interface{ Delete(context.Context) error }](c)
	if err != nil {
		return nil, err
	}
	return nil, t.Delete(c.ctx)
}

func opUpdate(c *call) (any, error) {
	sb, err := on[*sandbox.Sandbox](c)
	if err != nil {
		return nil, err
	}
	s := statics{}
	if err := c.args(&s); err != nil {
		return nil, err
	}
	var o sandbox.UpdateOptions
	var res struct {
		VCPUs int `json:"vcpus"`
	}
	err = errors.Join(
		s.get("persistent", &o.Persistent), s.get("resources", &res), s.get("tags", &o.Tags), s.get("ports", &o.Ports),
		s.get("currentSnapshotId", &o.CurrentSnapshotID), s.get("region", &o.Region), s.get("failoverRegions", &o.FailoverRegions),
	)
	if raw, ok := s["networkId"]; ok {
		o.NetworkID = new(s.text("networkId"))
		if !isNull(raw) && *o.NetworkID == "" {
			o.NetworkID = nil
		}
	}
	o.VCPUs = res.VCPUs
	timeout, terr := s.millis("timeout")
	if timeout != nil {
		o.Timeout = *timeout
	}
	var eerr, kerr, perr, merr error
	o.Mounts, merr = c.mounts(s)
	o.SnapshotExpiration, eerr = s.expiration("snapshotExpiration")
	if raw, ok := s["keepLastSnapshots"]; ok {
		if isNull(raw) {
			o.KeepLastSnapshots = &sandbox.KeepLastSnapshots{}
		} else {
			o.KeepLastSnapshots, kerr = keepLast(raw)
		}
	}
	if raw, ok := s["networkPolicy"]; ok && !isNull(raw) {
		o.NetworkPolicy, perr = policy(raw)
	}
	if err := errors.Join(err, terr, eerr, kerr, perr, merr); err != nil {
		return nil, err
	}
	return nil, sb.Update(c.ctx, &o)
}

func opUpdateNetworkPolicy(c *call) (any, error) {
	sb, err := on[*sandbox.Sandbox](c)
	if err != nil {
		return nil, err
	}
	var a struct {
		Policy json.RawMessage `json:"policy"`
	}
	if err := c.args(&a); err != nil {
		return nil, err
	}
	p, err := policy(a.Policy)
	if err != nil {
		return nil, err
	}
	got, err := sb.UpdateNetworkPolicy(c.ctx, p)
	return policyValue(got), err
}

func opExtendTimeout(c *call) (any, error) {
	t, err := on[interface {
		ExtendTimeout(context.Context, time.Duration) error
	}](c)
	if err != nil {
		return nil, err
	}
	var a struct {
		DurationMs float64 `json:"durationMs"`
	}
	if err := c.args(&a); err != nil {
		return nil, err
	}
	return once(c, func() (any, error) { return nil, t.ExtendTimeout(c.ctx, millis(a.DurationMs)) })
}

func opSnapshot(c *call) (any, error) {
	if drive, ok := c.target.(*sandbox.Drive); ok {
		return drive.Mount(sandbox.MountSnapshot), nil
	}
	t, err := on[interface {
		Snapshot(context.Context, *sandbox.SnapshotOptions) (*sandbox.Snapshot, error)
	}](c)
	if err != nil {
		return nil, err
	}
	s := statics{}
	if err := c.args(&s); err != nil {
		return nil, err
	}
	var o sandbox.SnapshotOptions
	if o.Expiration, err = s.expiration("expiration"); err != nil {
		return nil, err
	}
	return once(c, func() (*sandbox.Snapshot, error) { return t.Snapshot(c.ctx, &o) })
}

func opOpenInteractive(c *call) (any, error) {
	t, err := on[interface {
		OpenInteractive(context.Context) (*sandbox.Interactive, error)
	}](c)
	if err != nil {
		return nil, err
	}
	i, err := t.OpenInteractive(c.ctx)
	if err != nil {
		return nil, err
	}
	return map[string]any{"url": i.URL, "token": i.Token}, nil
}

func opList(c *call) (any, error) {
	s, client, err := c.static()
	if err != nil {
		return nil, err
	}
	l, lerr := s.listing()
	var o sandbox.ListOptions
	if err := errors.Join(
		lerr, s.get("limit", &o.Limit), s.get("sortBy", &o.SortBy), s.get("sortOrder", &o.SortOrder),
		s.get("namePrefix", &o.NamePrefix), s.get("cursor", &o.Cursor), s.get("tags", &o.Tags),
	); err != nil {
		return nil, err
	}
	first := func() (*sandbox.Page[sandbox.Info], error) {
		p, err := client.ListPage(c.ctx, &o)
		if len(o.Tags) > 1 && errors.Is(err, sandbox.ErrInvalid) {
			err = &textError{"Filtering by multiple tags is not supported. Pass a single `{ key: value }` tag.", err}
		}
		return p, err
	}
	return gather(c, l, "sandboxes", first, client.List(c.ctx, &o), sandboxData, nil)
}

func opSnapshotList(c *call) (any, error) {
	s, client, err := c.static()
	if err != nil {
		return nil, err
	}
	l, o, err := snapshotFilters(s)
	if err != nil {
		return nil, err
	}
	first := func() (*sandbox.Page[sandbox.SnapshotInfo], error) { return client.ListSnapshotsPage(c.ctx, &o) }
	return gather(c, l, "snapshots", first, client.ListSnapshots(c.ctx, &o), snapshotData, nil)
}

func snapshotFilters(s statics) (listing, sandbox.ListOptions, error) {
	var o sandbox.ListOptions
	l, err := s.listing()
	err = errors.Join(
		err, s.get("limit", &o.Limit), s.get("sortOrder", &o.SortOrder), s.get("cursor", &o.Cursor), s.get("name", &o.Sandbox),
	)
	return l, o, err
}

func opListSnapshots(c *call) (any, error) {
	sb, err := on[*sandbox.Sandbox](c)
	if err != nil {
		return nil, err
	}
	s := statics{}
	if err := c.args(&s); err != nil {
		return nil, err
	}
	l, o, err := snapshotFilters(s)
	if err != nil {
		return nil, err
	}
	_, client, err := c.static()
	if err != nil {
		return nil, err
	}
	first := func() (*sandbox.Page[sandbox.SnapshotInfo], error) {
		byName := o
		byName.Sandbox = sb.Name()
		return client.ListSnapshotsPage(c.ctx, &byName)
	}
	return gather(c, l, "snapshots", first, sb.ListSnapshots(c.ctx, &o), snapshotData, nil)
}

func opListSessions(c *call) (any, error) {
	sb, err := on[*sandbox.Sandbox](c)
	if err != nil {
		return nil, err
	}
	s := statics{}
	if err := c.args(&s); err != nil {
		return nil, err
	}
	l, lerr := s.listing()
	var o sandbox.ListOptions
	if err := errors.Join(
		lerr, s.get("limit", &o.Limit), s.get("sortOrder", &o.SortOrder), s.get("cursor", &o.Cursor),
	); err != nil {
		return nil, err
	}
	first := func() (*sandbox.Page[sandbox.SessionInfo], error) { return sb.ListSessionsPage(c.ctx, &o) }
	return gather(c, l, "sessions", first, sb.ListSessions(c.ctx, &o), listedSession, nil)
}

func opSnapshotTree(c *call) (any, error) {
	s, client, err := c.static()
	if err != nil {
		return nil, err
	}
	l, lerr := s.listing()
	var o sandbox.ListOptions
	if err := errors.Join(lerr, s.get("limit", &o.Limit), s.get("sortOrder", &o.SortOrder)); err != nil {
		return nil, err
	}
	id := s.text("snapshotId")
	if l.Collect == "pages" {
		return c.treePages(client, l, id, &o)
	}
	var anchor *sandbox.SnapshotTreeNode
	first := func() (*sandbox.Page[sandbox.SnapshotTreeNode], error) {
		p, err := client.SnapshotTreePage(c.ctx, id, &o)
		if err != nil {
			return nil, err
		}
		anchor = p.Anchor
		return p, nil
	}
	withAnchor := func(_ *sandbox.Page[sandbox.SnapshotTreeNode], out map[string]any) {
		if anchor != nil {
			out["anchor"] = normDeep(treeNode(*anchor))
		}
	}
	return gather(c, l, "snapshots", first, client.SnapshotTree(c.ctx, id, &o), treeNode, withAnchor)
}

// treePages pages through a tree, where each page has its own anchor.
func (c *call) treePages(client *sandbox.Client, l listing, id string, o *sandbox.ListOptions) (any, error) {
	out := []any{}
	if l.Take != nil && *l.Take == 0 {
		return out, nil
	}
	for {
		p, err := client.SnapshotTreePage(c.ctx, id, o)
		if err != nil {
			if len(out) > 0 {
				c.partial = out
			}
			return nil, err
		}
		items := []any{}
		for _, n := range p.Items {
			items = append(items, l.item(treeNode(n)))
		}
		page := map[string]any{"snapshots": items, "pagination": pagination(p.Count, p.Next)}
		if p.Anchor != nil {
			page["anchor"] = normDeep(treeNode(*p.Anchor))
		}
		if out = append(out, page); p.Next == "" || l.Take != nil && len(out) == *l.Take {
			return out, nil
		}
		id = p.Next
	}
}

func opSnapshotGet(c *call) (any, error) {
	s, client, err := c.static()
	if err != nil {
		return nil, err
	}
	return client.GetSnapshot(c.ctx, s.text("snapshotId"))
}

// once makes a call that the SDK does not retry by itself. The official SDK
// retries it after a failure that may have had an effect; here the driver takes
// that risk as a caller may, so that the rest of the scenario can be compared.
func once[T any](c *call, do func() (T, error)) (T, error) {
	v, err := do()
	pause := 440 * time.Millisecond
	for n := 1; n < 3; n++ {
		c.out["#sent"] = n
		if !errors.Is(err, sandbox.ErrOutcomeUnknown) || c.ctx.Err() != nil {
			break
		}
		var req *sandbox.RequestError
		var resp *sandbox.APIError
		if !errors.As(err, &req) && (!errors.As(err, &resp) || resp.Status < 500) {
			break
		}
		c.rule(ruleOnce)
		c.out["#sent"] = n + 1
		time.Sleep(pause)
		pause *= 2
		v, err = do()
	}
	return v, err
}
