package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/line"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/table"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/units"
	"github.com/go-vercel/sandbox/internal/api"
	"github.com/go-vercel/sandbox/internal/wire"
)

type driveView struct {
	ID                 string     `json:"id"`
	Name               string     `json:"name"`
	Region             string     `json:"region"`
	MaxSizeBytes       int64      `json:"maxSizeBytes"`
	CreatedAt          *time.Time `json:"createdAt"`
	UpdatedAt          *time.Time `json:"updatedAt"`
	CurrentSandboxName string     `json:"currentSandboxName,omitempty"`
	CurrentSessionID   string     `json:"currentSessionId,omitempty"`
}

func viewDrive(d sandbox.DriveInfo) driveView {
	return driveView{
		ID: d.ID, Name: d.Name, Region: d.Region, MaxSizeBytes: d.MaxSizeBytes, CreatedAt: timeOrNil(d.CreatedAt), UpdatedAt: timeOrNil(d.UpdatedAt),
		CurrentSandboxName: d.CurrentSandboxName, CurrentSessionID: d.CurrentSessionID,
	}
}

func (c *drivesListCommand) driveTable(views []driveView) *table.Table {
	t := table.New("NAME", "REGION", "CREATED", "UPDATED", "SIZE", "ATTACHED SANDBOX", "ATTACHED SESSION")
	t.Least = []string{"ATTACHED SESSION", "UPDATED", "REGION", "CREATED", "SIZE"}
	now := c.screen.Now()
	for _, v := range views {
		t.Row(v.Name, v.Region, relativeTime(v.CreatedAt, now), relativeTime(v.UpdatedAt, now), units.Bytes(v.MaxSizeBytes),
			orDash(v.CurrentSandboxName), orDash(v.CurrentSessionID))
	}
	return t
}

type drivesCommand struct{ deps }

func (c *drivesCommand) command() *line.Command {
	return &line.Command{
		Name: "drives", Near: []string{"volumes", "volume"}, Short: "Manage drives",
		Sub: describe(&drivesListCommand{deps: c.deps}, &drivesGetOrCreateCommand{deps: c.deps}, &drivesDeleteCommand{deps: c.deps}),
	}
}

// driveArg is an argument that names a drive.
var driveArg = line.Argument{Name: "name", Text: "The name of the drive", Parse: line.Checked(line.ParseDriveName)}

type drivesListCommand struct {
	deps

	pages  paging
	prefix string
}

func (c *drivesListCommand) command() *line.Command {
	return &line.Command{
		Name: "list", Aliases: []string{"ls"}, Near: []string{"get", "status"}, Short: "List the drives of a project",
		Options: func(flags *pflag.FlagSet) {
			line.Option(flags, &c.prefix, "name-prefix", "", "str", "", "Filter drives by name prefix", line.ParseAny)
			c.pages.define(flags, "drives")
		},
		Example: "drives ls", Doc: []driveView{}, Run: c.run,
	}
}

func (c *drivesListCommand) run(cmd *cobra.Command, _ []string) error {
	client, err := c.account.Connect(cmd.Context())
	if err != nil {
		return err
	}
	opts := &sandbox.ListDrivesOptions{NamePrefix: c.prefix, SortOrder: sandbox.SortOrder(c.pages.sortOrder)}
	stop := c.screen.Spin("Fetching drives...")
	found, next, err := collect(cmd.Context(), &c.pages, func(d sandbox.DriveInfo) string { return d.ID },
		func(sandbox.DriveInfo) bool { return true },
		func(ctx context.Context, limit int, cursor string) (*sandbox.Page[sandbox.DriveInfo], error) {
			opts.Limit, opts.Cursor = limit, cursor
			return client.ListDrivesPage(ctx, opts)
		})
	stop()
	if err != nil {
		return err
	}
	ans := screen.List(mapped(found, viewDrive), func(v driveView) string { return v.Name }, c.driveTable)
	ans.Empty = "No drives."
	return c.printPage(ans, next)
}

type drivesGetOrCreateCommand struct {
	deps

	drive sandbox.DriveOptions
}

func (c *drivesGetOrCreateCommand) command() *line.Command {
	return &line.Command{
		Name: "get-or-create", Near: []string{"create", "new", "add"}, Short: "Create a drive unless it exists", Args: []line.Argument{driveArg},
		Options: func(flags *pflag.FlagSet) {
			line.Option(flags, &c.drive.MaxSizeBytes, "max-size", "", "BYTES", "", "The maximum size, in bytes or with a unit such as 200GiB. It can't be changed later. The default is "+
				"1 TiB, or 1 GiB on the Hobby plan", line.ParseSize)
			line.Option(flags, &c.drive.Region, "region", "", "REGION", "", "The region of the drive", line.ParseRegion)
			line.Offer(flags, "region", wire.Regions...)
		},
		Example: "drives get-or-create cache --max-size 200GiB", Doc: driveView{}, Run: c.run,
	}
}

func (c *drivesGetOrCreateCommand) run(cmd *cobra.Command, args []string) error {
	client, err := c.account.Connect(cmd.Context())
	if err != nil {
		return err
	}
	chosen := c.drive.MaxSizeBytes > 0
	if !chosen {
		if c.drive.MaxSizeBytes, err = c.askSize(cmd.Context(), client, args[0]); err != nil {
			return err
		}
	}
	stop := c.screen.Spin("Creating drive...")
	drive, err := client.GetOrCreateDrive(cmd.Context(), args[0], &c.drive)
	stop()
	if err != nil {
		return err
	}
	v := viewDrive(drive.Info())
	if c.screen.Opts.Structured() {
		return c.screen.Print(screen.Output{Doc: v, Names: []string{v.Name}})
	}
	fmt.Fprintf(c.screen.Err, "✅ Drive %s is ready.\n", v.Name)
	size := "size: " + units.Bytes(v.MaxSizeBytes)
	if !chosen {
		size += " (--max-size sets it when a drive is made; it stays)"
	}
	c.screen.Tree([]string{"region: " + v.Region, size}, func(s string) string { return s })
	return nil
}

// askSize asks the user at a terminal for the size of a drive that does not
// exist yet. Zero is the default of the plan. Agents are not asked.
func (c *drivesGetOrCreateCommand) askSize(ctx context.Context, client *sandbox.Client, name string) (int64, error) {
	if c.screen.Opts.Yes || c.screen.Opts.Structured() || !c.screen.Asks() || api.CodingAgent() != "" {
		return 0, nil
	}
	if _, err := client.GetDrive(ctx, name); !errors.Is(err, sandbox.ErrNotFound) {
		return 0, err
	}
	for {
		answer, err := c.screen.Ask(ctx, "Largest size, such as 200GiB (Enter for the plan's default: 1 TiB, or 1 GiB on Hobby; at most 16 TiB; it stays):")
		if err != nil || answer == "" {
			return 0, err
		}
		size, err := line.ParseSize(answer)
		if err == nil {
			return size, nil
		}
		fmt.Fprintln(c.screen.Err, err)
	}
}

type drivesDeleteCommand struct{ deps }

func (c *drivesDeleteCommand) command() *line.Command {
	return &line.Command{
		Name: "delete", Aliases: []string{"rm", "remove"}, Near: []string{"destroy"}, Short: "Delete drives",
		Args:    []line.Argument{driveArg, {Name: "name", Text: "More drives", Several: true, Parse: line.Checked(line.ParseDriveName)}},
		Example: "drives rm cache", Doc: []string{}, Run: c.run,
	}
}

func (c *drivesDeleteCommand) run(cmd *cobra.Command, args []string) error {
	client, err := c.account.Connect(cmd.Context())
	if err != nil {
		return err
	}
	return c.runTasks(distinct(args), "Deleting drive ", func(name string) error {
		drive, err := client.GetDrive(cmd.Context(), name)
		if err != nil {
			return err
		}
		if holder := drive.Info().CurrentSandboxName; holder != "" {
			return &screen.ExitError{Code: screen.ExitConflict, Err: fmt.Errorf("drive %s is attached to sandbox %s; stop that first", name, holder)}
		}
		return drive.Delete(cmd.Context())
	})
}
