package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
)

// driveDir is where a drive is in the sandbox that reads it.
const driveDir = "/drive/"

// driveFiles reads drives, which only a sandbox can.
type driveFiles struct{ app *app }

// with runs some work in a sandbox that has the last written state of a drive, and
// removes the sandbox, however the work ended.
func (f driveFiles) with(ctx context.Context, name string, work func(*sandbox.Sandbox) error) error {
	client, err := f.app.connect(ctx)
	if err != nil {
		return err
	}
	drive, err := client.GetDrive(ctx, name)
	if err != nil {
		return err
	}
	o := &runOptions{rm: true, settings: settingsOptions{
		nonPersistent: true, silent: true, region: drive.Info().Region, mounts: []mount{{name, strings.TrimSuffix(driveDir, "/"), string(sandbox.MountSnapshot)}},
	}}
	create, err := o.settings.createOptions(f.app.stdio)
	if err != nil {
		return err
	}
	stop := f.app.spin("Creating a sandbox to read the drive, which is removed afterwards...")
	sb, err := f.app.sandboxForRun(ctx, o, create)
	stop()
	if err != nil {
		return err
	}
	return f.app.andThen(ctx, sb, func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return work(sb)
	}, func(ctx context.Context, sb *sandbox.Sandbox) error { return sb.Delete(ctx, nil) })
}

// parseDrivePath reads DRIVE[:PATH].
func parseDrivePath(s string) (drive, path string, err error) {
	drive, path, _ = strings.Cut(s, ":")
	if drive == "" || strings.ContainsAny(drive, `/\.`) {
		return "", "", usagef("%s is not a path of a drive, DRIVE:PATH", quote(s))
	}
	return drive, driveDir + strings.TrimLeft(path, "/"), nil
}

type drivesFilesCommand struct{ driveFiles }

func (c *drivesFilesCommand) command() *cobra.Command {
	return &cobra.Command{
		Use: "files <drive:path>", Short: "List the files of a drive", Args: positionals("drive:path"), RunE: c.run,
		Long: "List the files of a directory of a drive, as they were last written. A sandbox is made for it, with the drive attached in mode snapshot, and removed.",
	}
}

func (c *drivesFilesCommand) run(cmd *cobra.Command, args []string) error {
	drive, path, err := parseDrivePath(args[0])
	if err != nil {
		return err
	}
	return c.with(cmd.Context(), drive, func(sb *sandbox.Sandbox) error {
		return (&fsCommand{app: c.app}).fsList(cmd.Context(), sb.FS(), []string{path})
	})
}

type drivesCopyCommand struct {
	driveFiles

	o copyOptions
}

func (c *drivesCopyCommand) command() *cobra.Command {
	cmd := &cobra.Command{
		Use: "copy <drive:path> <to>", Aliases: []string{"cp"}, Short: "Copy files out of a drive", Args: positionals("drive:path", "to"), RunE: c.run,
		Long: "Copy a file or directory out of a drive, as it was last written; - writes it to standard output. " +
			"A sandbox is made for it, with the drive attached in mode snapshot, and removed.",
		Example: "  $ sandbox drives cp cache:models ./models",
	}
	toggle(cmd.Flags(), &c.o.mkdir, "mkdir", "", "Make the local directories that lead to the destination")
	toggle(cmd.Flags(), &c.o.noProgress, "no-progress", "", "Never show the progress")
	return cmd
}

func (c *drivesCopyCommand) run(cmd *cobra.Command, args []string) error {
	drive, path, err := parseDrivePath(args[0])
	if err != nil {
		return err
	}
	to := location{path: args[1], stream: args[1] == "-"}
	return c.with(cmd.Context(), drive, func(sb *sandbox.Sandbox) error {
		one := &copying{app: c.app, o: &c.o, from: location{sandbox: sb.Name(), path: path}, to: to, source: sb}
		if err := one.run(cmd.Context()); err != nil || to.stream || c.app.opts.quiet {
			return err
		}
		fmt.Fprintf(c.app.err, "%s Copied %s to %s successfully!\n", c.app.err.Paint(console.Green, "✔"), lines(args[0]), args[1])
		return nil
	})
}
