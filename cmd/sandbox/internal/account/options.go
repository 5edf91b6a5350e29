package account

import "time"

// Options are the options of all commands that select the account.
type Options struct {
	Token, Project, Scope string

	APIURL         string
	RequestTimeout time.Duration
	Local          bool
}

// accountOptions returns the options of this command line that name the account, without
// tokens.
func (c *Account) accountOptions() (words []string) {
	o := &c.Given
	if o.Local {
		words = append(words, "--local")
	}
	for _, option := range [][2]string{{"--api-url", o.APIURL}, {"--scope", o.Scope}, {"--project", o.Project}} {
		if option[1] != "" {
			words = append(words, option[0]+"="+option[1])
		}
	}
	return words
}

// Here returns the start of a command line that uses the same account as this one.
func (c *Account) Here(command string) []string {
	words := append([]string{"sandbox", command}, c.accountOptions()...)
	if c.Given.Local {
		return words
	}
	if c.Given.Scope == "" {
		words = append(words, "--scope="+c.Scope.TeamID)
	}
	if c.Given.Project == "" {
		words = append(words, "--project="+c.Scope.ProjectID)
	}
	return words
}
