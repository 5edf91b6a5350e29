package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/go-vercel/sandbox/internal/redact"
)

// annotate marks an error in a workflow of GitHub, next to the line that a person
// reads, and adds it to the summary of the step.
func (a *app) annotate(f failure) {
	if on, _ := a.env.lookup("GITHUB_ACTIONS"); on != "true" {
		return
	}
	a.annotated = true
	text := f.Message
	if f.Hint != "" {
		text += "\nhint: " + f.Hint
	}
	if !a.wantsJSONErrors() { // which is all that is on standard error
		// A line break would end the annotation, and begin a command of the workflow.
		fmt.Fprintf(a.err, "::error title=%s::%s\n", strings.ReplaceAll(a.path, ":", "%3A"), strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(lines(text)))
	}
	a.summarize(f.Message)
}

// summarize adds how a command has failed to the summary of a step of a workflow. Of
// the line it has the command's name alone: arguments may be secret.
func (a *app) summarize(text string) {
	name, _ := a.env.lookup("GITHUB_STEP_SUMMARY")
	if on, _ := a.env.lookup("GITHUB_ACTIONS"); on != "true" || name == "" {
		return
	}
	file, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return // the step has its error without a summary, too
	}
	defer file.Close()
	code := func(s string) string { return "`" + strings.ReplaceAll(redact.Printable(s), "`", "'") + "`" }
	fmt.Fprintf(file, "- %s: %s\n", code(a.path), code(text))
}
