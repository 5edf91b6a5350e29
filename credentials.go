package sandbox

import (
	"fmt"
	"maps"

	"github.com/go-vercel/sandbox/internal/redact"
)

// Credentials name credentials of the team that a sandbox may use. They stay
// outside: the firewall adds them to requests as they leave, each to its own
// hosts only, so that programs of the sandbox use them and can't read them. A
// network policy has to allow the hosts.
type Credentials struct {
	// NPM lets the sandbox install packages from the registries for which the
	// team has a shared environment variable NPM_TOKEN or NPM_RC.
	NPM bool
	// Extra are credentials that this version has no field for, by their names in
	// the request. The values are sent as they are, and never shown.
	Extra map[string]any `json:"-" secret:"names"`
}

// Format prints the credentials without the values of Extra, for every verb.
func (c Credentials) Format(f fmt.State, verb rune) { redact.Struct(f, verb, c) }

func credentialsToWire(field string, c *Credentials) (map[string]any, error) {
	if err := checkExtra(field+".Extra", c.Extra, map[string]string{"npm": "NPM"}); err != nil {
		return nil, err
	}
	all := maps.Clone(c.Extra)
	if all == nil {
		all = map[string]any{}
	}
	if c.NPM {
		all["npm"] = true
	}
	return all, nil
}
