package account

import (
	"os"
	"strings"

	"github.com/go-vercel/sandbox/internal/oidc"
)

// UnusedTokens explains for doctor why each unused token is not used.
func (c *Account) UnusedTokens() string {
	var list []string
	before := true // whether the token in use comes later in the search order
	add := func(name string, set bool) {
		switch {
		case name == c.screen.Source:
			before = false
		case !set:
		case before:
			list = append(list, name+" needs VERCEL_TEAM_ID and VERCEL_PROJECT_ID, or a linked folder")
		default:
			list = append(list, name+" comes after "+c.screen.Source)
		}
	}
	add("--token", c.Given.Token != "")
	for _, from := range []struct {
		lookup func(string) (string, bool)
		suffix string
	}{{c.screen.Env.Lookup, ""}, {c.screen.Env.LookupFiles, ofFile}} {
		for _, key := range []string{"SANDBOX_TOKEN", "VERCEL_AUTH_TOKEN", "VERCEL_TOKEN", "VERCEL_OIDC_TOKEN_FILE", "VERCEL_OIDC_TOKEN"} {
			value, _ := from.lookup(key)
			name := key + from.suffix
			if key == "VERCEL_OIDC_TOKEN_FILE" && from.suffix != "" && value != "" {
				list = append(list, name+" is not read: a folder's files can't name a file outside of it")
				continue
			}
			add(name, value != "")
		}
	}
	if file, err := oidc.NewHost(nil, c.screen.Env.Getenv, "").LoginFile(); err == nil && c.screen.Source != loginSource {
		_, err := os.Stat(file)
		add(loginSource, err == nil)
	}
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, "; ")
}
