package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// usageError is a mistake in the command line.
type usageError struct {
	message string
	hint    string
}

func (e *usageError) Error() string { return e.message }

func usagef(format string, args ...any) error {
	return &usageError{message: fmt.Sprintf(format, args...)}
}

// moreAbout names a command's page.
func moreAbout(cmd *cobra.Command) string {
	return "for more information, try '" + cmd.CommandPath() + " --help'"
}
