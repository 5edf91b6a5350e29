package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/go-vercel/sandbox"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/console"
)

// driveDir is where a drive is in the sandbox that reads it.
const driveDir = "/drive/"

// driveFiles reads and writes drives, which only a sandbox can.
type driveFiles struct{ app *app }

// with runs some work in a sandbox that has a drive, or the last written state of
// it, and removes the sandbox, however the work ended.
func (f driveFiles) with(ctx context.Context, name, mode string, work func(*sandbox.Sandbox) error) error {
	client, err := f.app.connect(ctx)
	if err != nil {
		return err
	}
	drive, err := client.GetDrive(ctx, name)
	if err != nil {
		return err
	}
	writes := mode == "read-write"
	if err := notAttached(drive.Info()); writes && err != nil {
		return err
	}
	o := &runOptions{rm: true, settings: settingsOptions{
		nonPersistent: true, silent: true, region: drive.Info().Region, mounts: []mount{{name, strings.TrimSuffix(driveDir, "/"), mode}},
	}}
	create, err := o.settings.createOptions(ctx, f.app.stdio)
	if err != nil {
		return err
	}
	stop := f.app.spin("Creating a sandbox for the drive, which is removed afterwards...")
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
	}, func(ctx context.Context, sb *sandbox.Sandbox) error {
		var stopErr error
		if writes { // the drive keeps what was written when its sandbox stops
			_, stopErr = sb.Stop(ctx, nil)
		}
		return errors.Join(stopErr, sb.Delete(ctx, nil))
	})
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
	return c.with(cmd.Context(), drive, "snapshot", func(sb *sandbox.Sandbox) error {
		return (&fsCommand{app: c.app}).fsList(cmd.Context(), sb.FS(), []string{path})
	})
}

type drivesCopyCommand struct {
	driveFiles

	o copyOptions
}

func (c *drivesCopyCommand) command() *cobra.Command {
	cmd := &cobra.Command{
		Use: "copy <src> <dst>", Aliases: []string{"cp"}, Short: "Copy files out of a drive, or into one", Args: positionals("src", "dst"), RunE: c.run,
		Long: "Copy a file or directory out of a drive, as it was last written, or into one that no running sandbox can write; - is standard input or output. " +
			"One of the two is DRIVE:PATH. A sandbox is made for it, with the drive attached, and removed.",
		Example: "  $ sandbox drives cp cache:models ./models\n  $ sandbox drives cp ./models cache:models",
	}
	toggle(cmd.Flags(), &c.o.mkdir, "mkdir", "", "Make the local directories that lead to the destination")
	toggle(cmd.Flags(), &c.o.noProgress, "no-progress", "", "Never show the progress")
	return cmd
}

func (c *drivesCopyCommand) run(cmd *cobra.Command, args []string) error {
	var ends [2]location
	mode, drive := "snapshot", ""
	for i, arg := range args {
		if ends[i] = (location{path: arg, stream: arg == "-"}); ends[i].stream || !isDrivePath(arg) {
			continue
		}
		if drive != "" {
			return usagef("both are in drives; copy by way of a directory here")
		}
		var err error
		if drive, ends[i].path, err = parseDrivePath(arg); err != nil {
			return err
		}
		ends[i].sandbox = drive
		if i == 1 {
			mode = "read-write"
		}
	}
	from, to := ends[0], ends[1]
	if drive == "" {
		return usagef("neither %s nor %s is a path of a drive, DRIVE:PATH", quote(args[0]), quote(args[1]))
	}
	if mode == "read-write" && !from.stream {
		if _, err := os.Stat(from.path); err != nil {
			return noSource(from.path, err)
		}
	}
	return c.with(cmd.Context(), drive, mode, func(sb *sandbox.Sandbox) error {
		one := &copying{app: c.app, o: &c.o, from: from, to: to}
		if mode == "read-write" {
			one.target = sb
		} else {
			one.source = sb
		}
		if err := one.run(cmd.Context()); err != nil || to.stream {
			return err
		}
		if c.app.opts.structured() {
			return c.app.print(output{doc: []copyView{{args[0], args[1]}}})
		}
		fmt.Fprintf(c.app.err, "%s Copied %s to %s successfully!\n", c.app.err.Paint(console.Green, "✔"), lines(args[0]), lines(args[1]))
		return nil
	})
}

// isDrivePath tells DRIVE:PATH from a path here, as parseLocation does.
func isDrivePath(arg string) bool {
	l, err := parseLocation(arg)
	return err != nil || l.sandbox != ""
}
