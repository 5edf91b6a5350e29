package line

import (
	"fmt"

	"github.com/spf13/cobra"
)

// UsageError is a mistake in the command line.
type UsageError struct {
	Message string
	Hint    string
}

func (e *UsageError) Error() string { return e.Message }

// Usagef returns a [UsageError].
func Usagef(format string, args ...any) error {
	return &UsageError{Message: fmt.Sprintf(format, args...)}
}

// MoreAbout names the help page of a command.
func MoreAbout(cmd *cobra.Command) string {
	return "for more information, try '" + cmd.CommandPath() + " --help'"
}
