package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-vercel/sandbox"
)

// ForProject returns tools that work on any sandbox of the client's project. Each tool
// takes the sandbox's name as the argument "sandbox". Additional tools create, list and
// remove sandboxes. A nil opts means the defaults. The caller closes the Toolset.
func ForProject(client *sandbox.Client, opts *Options) *Toolset {
	t := newToolset(project{client, true}, opts)
	t.client = client
	all := slices.Concat(commandTools(), fileTools(), machineTools())
	for _, tool := range all {
		tool.InputSchema = withSandbox(tool.InputSchema)
	}
	t.setTools(append(all,
		newTool("create_sandbox", "Create a sandbox", createSandbox).asFindingSandbox(),
		newTool("list_sandboxes", "List the sandboxes of the project, the newest first", listSandboxes).asReadOnly().asFindingSandbox(),
		newTool("remove_sandbox", "Remove a sandbox and its files for good", removeSandbox).asDestructive().asFindingSandbox(),
	))
	return t
}

// ByName returns Sessions for which the ID of a conversation is the name of an existing
// sandbox. For example, ForConversation(ByName(client), "my-app", nil) returns the tools for
// the sandbox my-app.
func ByName(client *sandbox.Client) Sessions { return project{client, false} }

// project finds sandboxes by their names.
type project struct {
	client        *sandbox.Client
	chosenByModel bool // the model chose the name, and can choose another
}

func (p project) Acquire(ctx context.Context, name string) (*sandbox.Sandbox, func(), error) {
	sb, err := p.get(ctx, name, nil)
	return sb, func() {}, err
}

// stop implements [stopper].
func (p project) stop(ctx context.Context, name string) (*sandbox.Sandbox, error) {
	sb, err := p.get(ctx, name, &sandbox.GetOptions{NoResume: true})
	if err != nil {
		return nil, err
	}
	_, err = sb.Stop(ctx, nil)
	return sb, err
}

func (p project) get(ctx context.Context, name string, opts *sandbox.GetOptions) (*sandbox.Sandbox, error) {
	sb, err := p.client.Get(ctx, name, opts)
	if p.chosenByModel && isGone(err) {
		return nil, modelErrorf("There is no sandbox %q. list_sandboxes lists all.", oneLine(name))
	}
	if err != nil && p.chosenByModel {
		return nil, explainRefusal(err)
	}
	return sb, err
}

// withSandbox adds the argument that names the sandbox to a schema.
func withSandbox(text json.RawMessage) json.RawMessage {
	var s map[string]any
	if err := json.Unmarshal(text, &s); err != nil {
		panic(err) // schema returns valid JSON
	}
	properties, _ := s["properties"].(map[string]any)
	properties["sandbox"] = map[string]any{"type": "string", "description": "the name of the sandbox"}
	required, _ := s["required"].([]any)
	s["required"] = append([]any{"sandbox"}, required...)
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // maps and strings can be marshaled
	}
	return text
}

// projectTools are the tools of a project without the additional argument "sandbox". They need
// no existing sandbox, or name it by an argument of their own.
var projectTools = []string{"create_sandbox", "list_sandboxes", "remove_sandbox"}

// takeSandboxName returns the arguments of a call without the sandbox's name. If the tools work
// on a project, it makes that name the call's Conversation.
func (t *Toolset) takeSandboxName(c *call) (json.RawMessage, error) {
	if t.client == nil || slices.Contains(projectTools, c.Tool) {
		return c.Arguments, nil
	}
	given, err := parseObject(c.Arguments)
	if err != nil {
		return nil, err
	}
	var name string
	if json.Unmarshal(given["sandbox"], &name) != nil || name == "" {
		return nil, modelErrorf(`The argument "sandbox" is missing: the name of a sandbox. list_sandboxes lists all.`)
	}
	c.Conversation = name
	delete(given, "sandbox")
	return json.Marshal(given)
}

type createInput struct {
	Name        string            `json:"name,omitempty" is:"a name, unique in the project; one is chosen if it is empty"`
	Image       string            `json:"image,omitempty" is:"an image; the default one has node, python, git and more"`
	Snapshot    string            `json:"snapshot_id,omitempty" is:"the snapshot whose files it starts with"`
	Git         string            `json:"git,omitempty" is:"the address of a git repository to clone"`
	Ports       []int             `json:"ports,omitempty" is:"ports to expose, from 1024 to 65535"`
	Env         map[string]string `json:"env,omitempty" is:"environment variables of all its commands"`
	Region      string            `json:"region,omitempty" is:"where it runs, such as iad1"`
	VCPUs       int               `json:"vcpus,omitempty" is:"the number of processors"`
	Minutes     int               `json:"timeout_minutes,omitempty" is:"after how many minutes it is stopped; 5 by default"`
	Tags        map[string]string `json:"tags,omitempty" is:"labels to find it by"`
	DenyNetwork bool              `json:"deny_network,omitempty" is:"whether to block all of its network access"`
}

func createSandbox(ctx context.Context, c *call, in *createInput) (Result, error) {
	o := &sandbox.CreateOptions{
		Name: in.Name, Image: in.Image, Ports: in.Ports, Env: in.Env, Region: in.Region, VCPUs: in.VCPUs,
		Timeout: time.Duration(in.Minutes) * time.Minute, Tags: in.Tags,
	}
	switch {
	case in.Git != "" && in.Snapshot != "":
		return Result{}, modelErrorf("A sandbox has its files from git or from a snapshot, not from both.")
	case in.Git != "":
		o.Source = sandbox.GitSource{URL: in.Git}
	case in.Snapshot != "":
		o.Source = sandbox.SnapshotSource{SnapshotID: in.Snapshot}
	}
	if in.DenyNetwork {
		o.NetworkPolicy = sandbox.DenyAll()
	}
	if most := c.limits().VCPUs; most > 0 && in.VCPUs > most {
		return Result{}, modelErrorf("A sandbox has at most %d vcpus here.", most)
	}
	if c.t.opts.Create != nil {
		if err := c.t.opts.Create(ctx, o); err != nil {
			return Result{}, err
		}
	}
	if !c.t.reserveSandbox() {
		return Result{}, modelErrorf("%d sandboxes that you have created exist, which is the limit. Remove one first.", c.limits().Sandboxes)
	}
	sb, err := c.t.client.Create(ctx, o)
	c.t.mu.Lock()
	c.t.creating--
	if err == nil {
		c.t.created[sb.Name()] = true
	}
	c.t.mu.Unlock()
	if err != nil {
		return Result{}, explainRefusal(err)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "Created the sandbox %s. Commands start in %s.", oneLine(sb.Name()), oneLine(sb.Cwd()))
	for _, r := range sb.Routes() {
		fmt.Fprintf(&text, " Port %d: %s.", r.Port, oneLine(r.URL))
	}
	return Result{Text: text.String(), Data: map[string]any{"sandbox": sb.Name()}}, nil
}

// reserveSandbox reports whether the model may create one more sandbox. If so, it counts the
// sandbox as being created.
func (t *Toolset) reserveSandbox() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if most := t.opts.Limits.Sandboxes; most > 0 && len(t.created)+t.creating >= most {
		return false
	}
	t.creating++
	return true
}

type listSandboxesInput struct {
	Prefix string `json:"name_prefix,omitempty" is:"list only sandboxes whose names begin with this"`
	Cursor string `json:"cursor,omitempty" is:"where the last list ended"`
}

func listSandboxes(ctx context.Context, c *call, in *listSandboxesInput) (Result, error) {
	// All rows must fit, because the next page begins after the last row.
	most := min(max(c.limits().dataBytes()/(maxOneLine+len("…\n")), 1), 50)
	o := &sandbox.ListOptions{Limit: most, NamePrefix: in.Prefix, Cursor: in.Cursor}
	if in.Prefix != "" {
		o.SortBy = "name"
	}
	page, err := c.t.client.ListPage(ctx, o)
	if err != nil {
		return Result{}, explainRefusal(err)
	}
	rows := make([]string, 0, len(page.Items))
	for _, i := range page.Items {
		image := cmp.Or(i.Image, i.Runtime)
		image, _, _ = strings.Cut(image, "@") // the digest means nothing to a model
		var row strings.Builder
		fmt.Fprintf(&row, "%s (%s, %s)", i.Name, i.Status, image)
		for _, key := range slices.Sorted(maps.Keys(i.Tags)) {
			fmt.Fprintf(&row, " %s=%s", key, i.Tags[key])
		}
		rows = append(rows, oneLine(row.String()))
	}
	text, shown := c.fitRows(rows)
	head := fmt.Sprintf("%d sandboxes.", shown)
	data := map[string]any{}
	if page.Next != "" {
		data["cursor"] = page.Next
		head += " There are more: cursor " + oneLine(page.Next) + "."
	}
	return Result{Text: head + text, Data: data}, nil
}

type removeInput struct {
	Sandbox string `json:"sandbox" is:"the name of the sandbox"`
}

func removeSandbox(ctx context.Context, c *call, in *removeInput) (Result, error) {
	err := c.t.client.Delete(ctx, in.Sandbox, nil)
	if err == nil || isGone(err) {
		c.t.mu.Lock()
		delete(c.t.created, in.Sandbox)
		c.t.mu.Unlock()
	}
	if isGone(err) {
		return Result{}, modelErrorf("There is no sandbox %q.", oneLine(in.Sandbox))
	}
	if err != nil {
		return Result{}, explainRefusal(err)
	}
	return Result{Text: "Removed " + oneLine(in.Sandbox) + "."}, nil
}

// explainRefusal returns an error that tells the model why the API refused its choice of a name,
// an image or a size.
func explainRefusal(err error) error {
	if text := refusalText(err); text != "" {
		return modelErrorf("The sandbox service refuses this:\n%s", wrapData(strings.TrimSpace(oneLine(text))))
	}
	return err
}
