package sandbox

import (
	"encoding/json"
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
	// Other are credentials that this version does not know, by their names in
	// the API. The values are sent as they are.
	Other map[string]any `json:"-" secret:"names"`
}

// Format prints the credentials without the values of Other, for every verb.
func (c Credentials) Format(f fmt.State, verb rune) { redact.Struct(f, verb, c) }

func (c *Credentials) toWire() (json.RawMessage, error) {
	all := make(map[string]any, len(c.Other)+1)
	maps.Copy(all, c.Other)
	if c.NPM {
		all["npm"] = true
	}
	data, err := json.Marshal(all)
	if err != nil {
		return nil, invalid("Credentials.Other", "%v", err)
	}
	return data, nil
}
